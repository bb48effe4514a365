/* LD_PRELOAD library of the crash suite: counts calls that change files below one
 * folder, over a command and all its children, and at the k-th one kills the process
 * group before the call is made, or lets that call and each later one fail for want of
 * space. CRASH_UNDER names the folder, CRASH_COUNTER a file of 4096 bytes that all
 * processes share, CRASH_AT is k, CRASH_MODE "kill" or "full". Without CRASH_AT it
 * does nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct shared { int count; char what[4092]; };

static int is_under(int folder, const char *path)
{
    const char *under = getenv("CRASH_UNDER");
    char link[64], full[8192];
    size_t length = 0;

    if (!under)
        return 0;
    if (!path || path[0] != '/') { /* relative to a folder, or an open file itself */
        ssize_t got;
        if (folder == AT_FDCWD)
            strcpy(link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        got = readlink(link, full, 4096);
        if (got <= 0)
            return 0;
        length = (size_t)got;
        full[length++] = '/';
    }
    snprintf(full + length, sizeof full - length, "%s", path ? path : "");
    length = strlen(under);
    return !strncmp(full, under, length) && (!full[length] || full[length] == '/');
}

/* Whether the call must fail. ``grows``: a full disk is a reason to. */
static int hit(int grows, const char *call, int folder, const char *path)
{
    static struct shared *shared;
    const char *at = getenv("CRASH_AT"), *mode = getenv("CRASH_MODE");
    int saved = errno, full = mode && !strcmp(mode, "full"), number;

    if (!at || (full && !grows) || !is_under(folder, path)) {
        errno = saved;
        return 0;
    }
    if (!shared) {
        int file = syscall(SYS_openat, AT_FDCWD, getenv("CRASH_COUNTER"), O_RDWR, 0);
        shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        syscall(SYS_close, file);
        if (shared == MAP_FAILED)
            abort();
    }
    number = __atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
    if (number == atoi(at)) {
        char name[4000] = "";
        if (!path) {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            path = readlink(link, name, sizeof name - 1) < 0 ? "?" : name;
        }
        snprintf(shared->what, sizeof shared->what, "%s %.4000s", call, path);
        if (!full)
            for (;;)
                syscall(SYS_kill, 0, SIGKILL);
    }
    errno = full && number >= atoi(at) ? ENOSPC : saved;
    return full && number >= atoi(at);
}

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
/* opening a file that is there needs no space */
#define GROWS(folder, path, flags) \
    (((flags) & O_CREAT) && faccessat(folder, path, F_OK, AT_SYMLINK_NOFOLLOW))
#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define TAKE_MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        TAKE_MODE \
        if (WRITES(flags) && hit(GROWS(AT_FDCWD, path, flags), "open", AT_FDCWD, path)) \
            return -1; \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        REAL(name); \
        TAKE_MODE \
        if (WRITES(flags) && hit(GROWS(folder, path, flags), "open", folder, path)) \
            return -1; \
        return real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

/* what a fortified program calls instead of a two-argument open */
#define OPEN_2(name, plain) \
    int name(const char *path, int flags) { return plain(path, flags); }
OPEN_2(__open_2, open)
OPEN_2(__open64_2, open64)

#define FOPEN(name) \
    FILE *name(const char *path, const char *how) \
    { \
        REAL(name); \
        int flags = strpbrk(how, "wa+") ? O_WRONLY | (how[0] == 'r' ? 0 : O_CREAT) : 0; \
        if (flags && hit(GROWS(AT_FDCWD, path, flags), "fopen", AT_FDCWD, path)) \
            return 0; \
        return real(path, how); \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define CALL(result, name, grows, folder, path, parameters, ...) \
    result name parameters \
    { \
        REAL(name); \
        if (hit(grows, #name, folder, path)) \
            return -1; \
        return real(__VA_ARGS__); \
    }
#define ON_PATH(name, grows, parameters, ...) \
    CALL(int, name, grows, AT_FDCWD, path, parameters, __VA_ARGS__)
#define IN_FOLDER(name, grows, parameters, ...) \
    CALL(int, name, grows, folder, path, parameters, __VA_ARGS__)
#define ON_FILE(result, name, grows, parameters, ...) \
    CALL(result, name, grows, file, 0, parameters, __VA_ARGS__)

ON_PATH(creat, 1, (const char *path, mode_t mode), path, mode)
ON_PATH(creat64, 1, (const char *path, mode_t mode), path, mode)
ON_PATH(mkstemp, 1, (char *path), path)
ON_PATH(mkstemp64, 1, (char *path), path)
ON_PATH(mkdir, 1, (const char *path, mode_t mode), path, mode)
ON_PATH(symlink, 1, (const char *to, const char *path), to, path)
ON_PATH(link, 1, (const char *from, const char *path), from, path)
ON_PATH(rename, 0, (const char *from, const char *path), from, path)
ON_PATH(unlink, 0, (const char *path), path)
ON_PATH(remove, 0, (const char *path), path)
ON_PATH(rmdir, 0, (const char *path), path)
ON_PATH(truncate, 0, (const char *path, off_t size), path, size)
ON_PATH(truncate64, 0, (const char *path, off64_t size), path, size)
ON_PATH(chmod, 0, (const char *path, mode_t mode), path, mode)
ON_PATH(chown, 0, (const char *path, uid_t user, gid_t group), path, user, group)
ON_PATH(lchown, 0, (const char *path, uid_t user, gid_t group), path, user, group)
IN_FOLDER(mkdirat, 1, (int folder, const char *path, mode_t mode), folder, path, mode)
IN_FOLDER(symlinkat, 1, (const char *to, int folder, const char *path), to, folder, path)
IN_FOLDER(unlinkat, 0, (int folder, const char *path, int flags), folder, path, flags)
IN_FOLDER(linkat, 1, (int other, const char *from, int folder, const char *path, int flags),
          other, from, folder, path, flags)
IN_FOLDER(renameat, 0, (int other, const char *from, int folder, const char *path),
          other, from, folder, path)
IN_FOLDER(renameat2, 0,
          (int other, const char *from, int folder, const char *path, unsigned flags),
          other, from, folder, path, flags)
ON_FILE(ssize_t, write, 1, (int file, const void *data, size_t size), file, data, size)
ON_FILE(ssize_t, pwrite, 1, (int file, const void *data, size_t size, off_t at),
        file, data, size, at)
ON_FILE(ssize_t, pwrite64, 1, (int file, const void *data, size_t size, off64_t at),
        file, data, size, at)
ON_FILE(ssize_t, writev, 1, (int file, const struct iovec *parts, int count),
        file, parts, count)
ON_FILE(int, fsync, 1, (int file), file)
ON_FILE(int, fdatasync, 1, (int file), file)
ON_FILE(int, ftruncate, 0, (int file, off_t size), file, size)
ON_FILE(int, ftruncate64, 0, (int file, off64_t size), file, size)
ON_FILE(int, fchmod, 0, (int file, mode_t mode), file, mode)
ON_FILE(int, fchown, 0, (int file, uid_t user, gid_t group), file, user, group)
