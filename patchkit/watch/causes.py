"""What is known of failures: the likely cause, and what to do. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """``says`` and ``next`` may hold ``{1}``: a group of the pattern."""

    name: str
    shape: re.Pattern[str]
    says: str
    next: str


def _cause(name: str, shape: str, says: str, next: str) -> Cause:
    return Cause(name, re.compile(shape, re.S), says, next)


#: The first that fits counts, so the special stand before the general.
CAUSES = (
    _cause(
        "eagle3-delegates",
        r"AttributeError: '(Kimi\w+)' object has no attribute"
        r" '(?:[sg]et_eagle3_layers_to_capture|get_embed_and_head|set_embed_and_head)'",
        "the vision wrapper {1} does not hand EAGLE-3's calls on to its language model",
        "patchkit apply kimi-k25-eagle3, then start the server again",
    ),
    _cause(
        "no-capture",
        r"AttributeError: '(\w+)' object has no attribute"
        r" '(?:[sg]et_eagle3_layers_to_capture|get_embed_and_head|set_embed_and_head)'",
        "{1} of this SGLang can't capture aux hidden states for EAGLE-3",
        "for a DeepSeek model: patchkit apply aux-capture; then start the server again",
    ),
    _cause(
        "capture-unsafe",
        r"(?:not permitted when stream is capturing|StreamCapture"
        r"|while capturing a graph|during CUDA graph capture|capturing stream)",
        "code that a CUDA graph can't capture ran inside one: a print of a tensor,"
        " .item(), .cpu() or .tolist(), most often debug code written by hand",
        "patchkit apply gate-debug-logging (or remove-debug-logging), then start again;"
        " the traceback names the line",
    ),
    _cause(
        "port-in-use",
        r"(?:Errno 98\][^\n]*|address already in use|EADDRINUSE|port \d+ is in use)",
        "another process listens on the port",
        "end it (ss -ltnp names it), or give another --port",
    ),
    _cause(
        "disk-full",
        r"(?:No space left on device|Disk quota exceeded)",
        "a disk is full, or the share of it that this user may have",
        "df -h tells which (/tmp, /dev/shm and the caches in ~ count, too)",
    ),
    _cause(
        "kv-memory",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "after the weights no memory is left for the KV cache",
        "raise --mem-fraction-static, use more GPUs (--tp-size), or a smaller or"
        " quantised model; nvidia-smi shows what else uses the GPU",
    ),
    _cause(
        "out-of-memory",
        r"(?:OutOfMemoryError|CUDA out of memory|CUDA error: out of memory"
        r"|can't allocate memory|MemoryError)",
        "a rank is out of memory",
        "lower --mem-fraction-static (graphs and activations need room beside the KV"
        " cache) or --cuda-graph-max-bs; nvidia-smi shows what else uses the GPU",
    ),
    _cause(
        "other-gpu",
        r"(?:no kernel image is available|driver version is insufficient"
        r"|named symbol not found)",
        "the CUDA code installed does not fit this GPU or driver",
        "install the build for it; nvidia-smi names driver and GPU",
    ),
    _cause(
        "missing-module",
        r"(?:ModuleNotFoundError: No module named '([\w.]+)')",
        "the Python module {1} is not installed where the server runs",
        "install it with the server's own interpreter; is it the right environment?",
    ),
    _cause(
        "import-error",
        r"ImportError: ([^\n]+)",
        "a module can't be imported: {1}",
        "is every package of the version that this SGLang asks for? pip check says so",
    ),
    _cause(
        "weights-broken",
        r"(?:SafetensorError|InvalidHeader|MetadataIncompleteBuffer|HeaderTooLarge"
        r"|PytorchStreamReader failed|unexpected end of file)",
        "a weights file is cut short or is no weights file (a Git LFS pointer, or a"
        " download that was broken off)",
        "compare its size with the source, and fetch it again",
    ),
    _cause(
        "weights-missing",
        r"(?:Cannot find any model weights"
        r"|does not appear to have (?:a file|files) named|Incorrect path_or_model_id"
        r"|Repo id must|Unrecognized model in"
        r"|No such file or directory: '([^']*)'|is not a local folder"
        r"|Can't load (?:the configuration|tokenizer)|LocalEntryNotFoundError)",
        "the checkpoint, or a file of it, is not there",
        "look at --model-path and --speculative-draft-model-path: they must hold"
        " config.json and the weights",
    ),
    _cause(
        "weights-do-not-fit",
        r"(?:size mismatch|(?:weight_loader|load_weights)\b.*The size of tensor a"
        r"|param_data\.shape == loaded_weight\.shape"
        r"|param\.size\(\) == loaded_weight\.size\(\)|Attempted to load weight"
        r"|KeyError: '[\w.]*(?:weight|bias|proj|scale)[\w.]*')",
        "the weights do not fit the model that config.json describes",
        "is it the checkpoint of this config.json, or a draft of another target?",
    ),
    _cause(
        "nothing-captured",
        r"(?:too many values to unpack|not enough values to unpack)[^\n]*",
        "a model was told to capture aux hidden states and handed none, or the reverse",
        "patchkit verify shows which layers this tree captures",
    ),
    _cause(
        "no-access",
        r"(?:GatedRepoError|RepositoryNotFoundError|401 Client Error|403 Client Error)",
        "the model hub refused the download",
        "log in (HF_TOKEN), accept the model's terms, or give a local folder",
    ),
    _cause(
        "remote-code",
        r"trust_remote_code=True",
        "the checkpoint brings code of its own, which must be allowed",
        "add --trust-remote-code if you trust it",
    ),
    _cause(
        "watchdog",
        r"[Ww]atchdog timeout",
        "SGLang's own watchdog ended a rank that made no step for too long",
        "patchkit watch shows the stacks of a hang before the watchdog strikes: start"
        " it with a --stall below --watchdog-timeout",
    ),
    _cause(
        "peer-lost",
        r"(?:NCCL error|ncclInternalError|ncclSystemError|ncclUnhandled|NCCL WARN"
        r"|by peer|connectFullMesh|Broken pipe|EOFError)",
        "this rank lost its connection to another one, or to the server",
        "look for what ended the other: the kernel's log (dmesg) for out of memory,"
        " NCCL_DEBUG=INFO for the network",
    ),
    _cause(
        "bad-arguments",
        r"(?:error: (?:unrecognized arguments|argument|the following arguments)[^\n]*)",
        "the server's command line has an argument that this release does not take",
        "python -m sglang.launch_server --help lists them",
    ),
)

_SIGNALS = {
    4: ("illegal-instruction", "an illegal instruction: built for another CPU",
        "install the build for this machine"),
    6: ("aborted", "an abort: C++ code gave up",
        "look above for what it printed last"),
    7: ("bus-error", "a bus error: often /dev/shm is too small",
        "give the container more shared memory (--shm-size, --ipc=host)"),
    9: ("killed", "SIGKILL: the kernel's out-of-memory killer, or somebody",
        "dmesg -T | grep -i kill, or the container's memory limit, tells which"),
    11: ("segfault", "a segmentation fault in compiled code",
         "the lines above may hold the stack; are the kernels of this torch version?"),
    15: ("terminated", "SIGTERM: somebody asked it to end",
         "look at who stops it: a scheduler, a probe, an operator"),
}  # fmt: skip


def find_cause(text: str) -> tuple[str, str, str] | None:
    """Name, likely cause and next step; ``None`` if it is no known failure.

    The end of a traceback is what counts, so that is looked at first.
    """
    for part in (text[-1500:], text):
        for one in CAUSES:
            found = one.shape.search(part)
            if found is not None:
                groups = [found[0], *(group or "" for group in found.groups())]
                fill = [_one_line(group) for group in groups]
                return one.name, one.says.format(*fill), one.next.format(*fill)
    return None


def signal_cause(number: int) -> tuple[str, str, str]:
    """The same for a process that a signal ended."""
    return _SIGNALS.get(number, (f"signal-{number}", f"signal {number}", ""))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
