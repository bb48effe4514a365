"""Files that can't be patched, and odd ones that can: nothing half done."""

import codecs

import pytest
from clikit import (
    DEEPSEEK,
    FILES,
    LLAMA,
    LOGITS,
    as_nobody,
    as_root,
    cli_error_lines,
    edit,
    refused,
    unchanged,
)
from support import snapshot

APPLY = ("apply", "debug-logging", "--target")


# -- the target itself ----------


def test_no_such_target(cli, tmp_path):
    said = cli(*APPLY, tmp_path / "nowhere")
    refused(said, 2, "nowhere", "there is no such folder")


def test_a_target_that_is_a_file(cli, site):
    refused(cli(*APPLY, site / "sglang" / LLAMA), 2, "is a file")


@pytest.mark.parametrize("command", ["apply debug-logging", "status", "revert", "log"])
def test_a_target_that_is_not_sglang(cli, tmp_path, command):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").touch()
    with unchanged(tmp_path):
        said = cli(*command.split(), "--target", tmp_path)
    refused(said, 3, "is not an SGLang tree", "site-packages")


# -- what the files hold ----------


def test_missing_files_are_all_named(cli, site):
    (site / "sglang" / LLAMA).unlink()
    (site / "sglang" / DEEPSEEK).unlink()
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA, DEEPSEEK, "missing", "reinstall")


def test_a_folder_where_a_file_should_be(cli, site):
    (site / "sglang" / LLAMA).unlink()
    (site / "sglang" / LLAMA).mkdir()
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA, "not a regular file")


@pytest.mark.parametrize("command", ["reapply", "revert"])
def test_a_file_that_goes_missing_later(cli, site, patched, command):
    """The journal has it: reapply writes it patched, revert as it was."""
    before = snapshot(patched)
    (patched / "sglang" / LLAMA).unlink()
    said = cli("status", "--target", patched, "--check")
    assert said.code == 1 and "MISSING" in said.out
    assert cli(command, "--target", patched).code == 0
    expected = before if command == "reapply" else snapshot(site)
    assert snapshot(patched) == expected


def test_a_syntax_error(cli, site):
    edit(site / "sglang" / LLAMA, "class LlamaModel(", "class class LlamaModel(")
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA, "not valid Python", "class class LlamaModel(")


def test_every_file_that_fails_is_listed(cli, site):
    edit(site / "sglang" / LLAMA, "class LlamaModel(", "class Model(")
    edit(site / "sglang" / LOGITS, "class LogitsProcessor(", "class (")
    (site / "sglang" / DEEPSEEK).write_bytes(b"\xff\xfe\0\0")
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA, LOGITS, DEEPSEEK)
    lines = cli_error_lines(said)
    assert any(LLAMA in x and "begin" in x for x in lines)
    assert any(LLAMA in x and "llama_eagle3.fc" in x for x in lines)
    asked = cli(*APPLY, site, "--json").json["error"]
    assert len(asked["details"]) >= 4


def convert(site, change):
    for path in FILES:
        file = site / "sglang" / path
        file.write_bytes(change(file.read_bytes()))


def latin1(data):
    return b"# -*- coding: latin-1 -*-\n" + data.decode().encode("latin-1", "replace")


def tabs(data):
    """Four leading spaces become a tab; strings over several lines do not matter."""
    lines = []
    for line in data.split(b"\n"):
        body = line.lstrip(b" ")
        depth, rest = divmod(len(line) - len(body), 4)
        lines.append(b"\t" * depth + b" " * rest + body)
    return b"\n".join(lines)


DRESSES = {
    "bom": lambda data: codecs.BOM_UTF8 + data,
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "tabs": tabs,
    "no-final-newline": lambda data: data.rstrip(b"\n"),
    "latin-1": lambda data: latin1(data) + b"# \xe9\n",
    "form-feed": lambda data: data + b"\x0c\n# a page\n",
}


@pytest.mark.parametrize("dress", DRESSES)
def test_dresses_that_work(cli, site, dress):
    convert(site, DRESSES[dress])
    before = snapshot(site)
    said = cli(*APPLY, site, "-O", "layers=all")
    assert said.code == 0, said.err
    for path in FILES:
        old = before[f"sglang/{path}"]
        new = (site / "sglang" / path).read_bytes()
        end = b"\r\n" if dress == "crlf" else b"\n"
        ours = [x for x in new.splitlines(keepends=True) if b"# patchkit: " in x]
        assert ours and all(x.endswith(b"debug-logging" + end) for x in ours)
        kept = [x for x in new.splitlines(keepends=True) if b"# patchkit: " not in x]
        assert b"".join(kept) == old
        compile(new, path, "exec")
    assert cli("status", "--target", site, "--check").code == 0
    assert cli("revert", "--target", site).code == 0
    assert snapshot(site) == before


def test_edits_in_a_crlf_file_are_merged(cli, site):
    convert(site, DRESSES["crlf"])
    assert cli(*APPLY, site).code == 0
    edit(site / "sglang" / DEEPSEEK, "# Adapted from:", "# Mine:")
    assert cli(*APPLY, site, "-O", "layers=all").code == 0
    assert cli("revert", "--target", site).code == 0
    data = (site / "sglang" / DEEPSEEK).read_bytes()
    assert b"# Mine:" in data and data.count(b"\n") == data.count(b"\r\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.decode().encode("utf-16"), "encoding"),
        (lambda d: b"# coding: nonsense\n" + d, "unknown encoding"),
        (lambda d: b"# coding: utf-16\n" + d, "encoding"),
        (lambda d: d + b"# \xe9\n", "not valid utf-8"),
        (lambda d: d + b"\0", "NUL"),
        (lambda d: d.replace(b"\n", b"\r"), "lone CR"),
        (lambda d: b"", ""),
    ],
    ids=["utf-16", "unknown", "utf-16-cookie", "not-utf-8", "nul", "cr", "empty"],
)
def test_encodings_that_are_refused(cli, site, change, words):
    convert(site, change)
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, *FILES, words)


# -- what the files are ----------


@pytest.mark.parametrize("what", [LLAMA, "srt/models", "srt"])
def test_read_only_is_on_purpose_even_for_root(cli, site, what):
    path = site / "sglang" / what
    path.chmod(0o444 if path.is_file() else 0o555)
    with unchanged(site):
        said = cli(*APPLY, site)
    path.chmod(0o755)
    refused(said, 3, "read-only", "chmod u+w")


@as_root
def test_a_user_who_may_not_write(open_folder, site, patched):
    site.rename(open_folder / "site")
    patched.rename(open_folder / "patched")
    with unchanged(open_folder):
        said = as_nobody(*APPLY, open_folder / "site")
        refused(said, 3, "can't be written", "run as the user who owns the tree")
        said = as_nobody("revert", "--target", open_folder / "patched")
        refused(said, 3, "can't be written")
        # looking is allowed
        said = as_nobody("status", "--target", open_folder / "patched", "--check")
        assert said.code == 0, said.err
        assert as_nobody("diff", "--target", open_folder / "patched").out
        assert as_nobody("log", "--target", open_folder / "patched").out


@as_root
def test_a_user_who_may_not_read(open_folder, site):
    site.rename(open_folder / "site")
    (open_folder / "site/sglang" / LLAMA).chmod(0o600)
    said = as_nobody(
        "apply", "debug-logging", "--dry-run", "--target", open_folder / "site"
    )
    refused(said, 3, LLAMA, "can't be read")
    (open_folder / "site").chmod(0o700)
    refused(as_nobody("status", "--target", open_folder / "site/sglang"), 2, "no such")
    refused(as_nobody("status", "--target", open_folder / "site"), 3, "not an SGLang")
