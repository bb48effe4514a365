"""Links and stale bytecode: what else may stand beside the text of a file."""

import os
import py_compile
import subprocess
import sys

from clikit import FILES, LLAMA, refused, unchanged, write_recipe
from support import snapshot

APPLY = ("apply", "debug-logging", "--target")


def test_a_link_out_of_the_target(cli, site, tmp_path):
    outside = tmp_path / "cache.py"
    (site / "sglang" / LLAMA).rename(outside)
    (site / "sglang" / LLAMA).symlink_to(outside)
    with unchanged(tmp_path):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA, "outside the target", "copy")


def test_a_link_inside_the_target_stays_a_link(cli, site):
    file = site / "sglang" / LLAMA
    file.rename(file.with_name("real.py"))
    file.symlink_to("real.py")
    before = snapshot(site)
    assert cli(*APPLY, site).code == 0
    assert file.is_symlink()
    assert b"# patchkit" in file.with_name("real.py").read_bytes()
    assert cli("revert", "--target", site).code == 0
    assert file.is_symlink()
    assert snapshot(site) == before


def test_a_dangling_link(cli, site):
    (site / "sglang" / LLAMA).unlink()
    (site / "sglang" / LLAMA).symlink_to("gone.py")
    with unchanged(site):
        said = cli(*APPLY, site)
    refused(said, 3, LLAMA)


def test_hard_links_into_a_cache_are_left_alone(cli, site, tmp_path):
    """As package managers make them: the other name must not change."""
    others = {}
    for number, path in enumerate(FILES):
        other = tmp_path / f"cached-{number}"
        os.link(site / "sglang" / path, other)
        other.chmod(0o640)
        others[other] = (other.read_bytes(), other.stat())
    assert cli(*APPLY, site).code == 0
    for path in FILES:
        about = (site / "sglang" / path).stat()
        assert about.st_mode & 0o777 == 0o640 and about.st_nlink == 1
    assert cli("revert", "--target", site).code == 0
    for other, (data, about) in others.items():
        now = other.stat()
        assert other.read_bytes() == data
        assert (now.st_mode, now.st_mtime_ns, now.st_ino) == (
            about.st_mode,
            about.st_mtime_ns,
            about.st_ino,
        )


def test_modes_are_kept(cli, site):
    (site / "sglang" / LLAMA).chmod(0o755)
    assert cli(*APPLY, site).code == 0
    assert (site / "sglang" / LLAMA).stat().st_mode & 0o777 == 0o755


# -- bytecode ----------


def imported_value(folder):
    """What a fresh python makes of sglang/srt/models/llama_eagle3.py."""
    done = subprocess.run(
        [sys.executable, "-c", "import llama_eagle3 as m; print(m.VALUE)"],
        cwd=folder / "sglang" / "srt" / "models",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_stale_bytecode_that_would_hide_the_edit(cli, site, recipes):
    file = site / "sglang" / LLAMA
    stock = (
        b"class M:\n    def value(self):\n        return 1\n\n\nVALUE = M().value()\n"
    )
    file.write_bytes(stock)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = py_compile.compile(str(file), invalidation_mode=mode, doraise=True)
    # python runs it, whatever the source says
    file.write_bytes(stock.replace(b"return 1", b"return 2"))
    assert imported_value(site) == "1"
    file.write_bytes(stock)
    body = "return insert_first(function, lambda d: self.lines(['return 3']))"
    write_recipe(recipes, owner="M", function="value", body=body)
    said = cli("apply", "user-recipe", "--recipes", recipes, "--target", site)
    assert said.code == 0, said.err
    assert "unchecked-hash bytecode" in said.words
    assert not os.path.exists(compiled)
    assert imported_value(site) == "3"


def test_ordinary_bytecode_is_left_alone(cli, site):
    file = site / "sglang" / LLAMA
    compiled = py_compile.compile(str(file), doraise=True)
    assert cli(*APPLY, site).code == 0
    assert os.path.exists(compiled)
