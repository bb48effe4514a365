"""What is compared with what: baselines, promises, revert on a scratch copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import support
import verifykit as kit

from patchkit import registry
from patchkit.errors import Refused, UsageError
from patchkit.model import TAP_FOLDER
from patchkit.registry import Registry, tap_files
from patchkit.verify.promises import find_promises
from patchkit.verify.revert import check_revert
from patchkit.verify.trees import CORE, Trees, find_trees, write_overlay
from patchkit.verify.verdict import Verdict
from patchkit.workspace.tree import Workspace

TAP = "srt/patchkit_tap/__init__.py"
DEEPSEEK = "srt/models/deepseek_v2.py"

MakeTree = Callable[..., Path]


def opened(folder: Path, package: str = "sglang") -> Workspace:
    return Workspace(folder / package, Registry())


def trees_of(workspace: Workspace, baseline: str = "journal") -> Trees:
    with workspace.reading(dry=True), find_trees(workspace, baseline) as found:
        return found


@pytest.fixture
def patched(tree: MakeTree) -> Path:
    folder = tree("0.5.9")
    done = support.run_patchkit("apply", "debug-logging", "--target", folder)
    assert done.returncode == 0, done.stderr
    return folder


# -- baselines --------------------------------------------


def test_nothing_applied_is_its_own_baseline(tree: MakeTree) -> None:
    found = trees_of(opened(tree("0.5.9")))
    assert found.same and set(found.patched) == set(CORE)


def test_the_journals_originals(patched: Path) -> None:
    found = trees_of(opened(patched))
    stock = support.stock("0.5.9") / "sglang"
    assert not found.same
    for path in CORE:
        assert found.baseline[path] == (stock / path).read_bytes()
        assert found.patched[path] == (patched / "sglang" / path).read_bytes()
    assert found.baseline[TAP] is None and found.patched[TAP]


def test_drift_is_part_of_the_tree_and_not_of_the_baseline(patched: Path) -> None:
    file = patched / "sglang" / DEEPSEEK
    file.write_bytes(file.read_bytes() + b"\n# mine\n")
    found = trees_of(opened(patched))
    assert (found.patched[DEEPSEEK] or b"").endswith(b"# mine\n")
    assert not (found.baseline[DEEPSEEK] or b"").endswith(b"# mine\n")


def test_a_tree_without_its_journal_is_proven_or_refused(
    patched: Path, tmp_path: Path
) -> None:
    (patched / ".patchkit").rename(tmp_path / "away")
    found = trees_of(opened(patched))
    assert not found.same and found.baseline[TAP] is None
    file = patched / "sglang" / DEEPSEEK
    file.write_bytes(file.read_bytes() + b"\n# mine\n")
    with pytest.raises(Refused, match="marked without a journal"):
        trees_of(opened(patched))


def test_a_revision_of_the_checkout(tree: MakeTree, tmp_path: Path) -> None:
    top = support.make_checkout(tree("0.5.9"), tmp_path / "checkout")
    support.run_patchkit("apply", "debug-logging", "--target", top)
    found = trees_of(opened(top, "python/sglang"), "git:HEAD")
    stock = support.stock("0.5.9") / "sglang"
    assert {path for path, data in found.baseline.items() if data is None} == {
        path for path in found.patched if path.startswith("srt/patchkit_tap/")
    }
    assert found.baseline[DEEPSEEK] == (stock / DEEPSEEK).read_bytes()
    for wrong in ("git:nothing", "git:--help"):
        with pytest.raises(UsageError, match="--baseline git:"):
            trees_of(opened(top, "python/sglang"), wrong)


@pytest.mark.parametrize("wrong", ["", "git", "git:", "pypi:", "other:1", "journal:x"])
def test_baselines_that_there_are_not(tree: MakeTree, wrong: str) -> None:
    with pytest.raises(UsageError):
        trees_of(opened(tree("0.5.9")), wrong)


def test_git_needs_a_checkout(tree: MakeTree) -> None:
    with pytest.raises(UsageError, match="no git checkout"):
        trees_of(opened(tree("0.5.9")), "git:HEAD")


def test_another_tree_altogether_is_a_package_of_its_own(tree: MakeTree) -> None:
    workspace = opened(tree("0.5.9"))  # four files, so the wheel has many more
    with workspace.reading(dry=True), find_trees(workspace, "pypi:0.5.9") as found:
        assert found.elsewhere is not None
        assert (found.elsewhere / DEEPSEEK).is_file()
        assert not found.same
    assert not found.elsewhere.exists()


def test_an_overlay_names_what_must_be_absent(tmp_path: Path) -> None:
    made = write_overlay({"srt/a.py": b"x = 1\n", TAP: None}, tmp_path)
    assert made == {
        "sglang.srt.a": str(tmp_path / "srt/a.py"),
        "sglang.srt.patchkit_tap": None,
    }
    assert (tmp_path / "srt/a.py").read_bytes() == b"x = 1\n"


# -- promises and revert --------------------------------------------


def promised(folder: Path) -> dict[str, frozenset[int] | None]:
    workspace = opened(folder)
    with workspace.reading(dry=True):
        return {one.site: one.layers for one in find_promises(workspace).sites}


def test_only_sites_that_the_tree_has_are_promised(tree: MakeTree) -> None:
    old = tree("0.4.9", "old")
    support.run_patchkit("apply", "debug-logging", "--target", old)
    assert set(promised(old)) == {
        "logits_processor.concat",
        "llama_eagle3.fc_in",
        "llama_eagle3.fc_out",
    }


def test_an_option_says_of_which_layers(tree: MakeTree) -> None:
    new = tree("0.5.9", "new")
    command = ("apply", "debug-logging", "--target", new, "-O", "layers=0,3")
    support.run_patchkit(*command)
    assert promised(new)["deepseek_v2.layer"] == frozenset({0, 3})
    assert promised(new)["deepseek_v2.aux"] is None


def test_a_recipe_may_not_promise_what_there_is_not(
    tree: MakeTree, tmp_path: Path
) -> None:
    recipes = tmp_path / "mine"
    recipes.mkdir()
    source = (kit.ROOT / "recipes/debug_logging.py").read_text("utf-8")
    wrong = source.replace('"target.states"', '"target.moods"')
    (recipes / "my_logging.py").write_text(wrong, "utf-8")
    folder = tree("0.5.9")
    command = ("apply", "my-logging", "--target", folder, "--recipes", recipes)
    done = support.run_patchkit(*command)
    assert done.returncode == 0, done.stderr
    workspace = Workspace(folder / "sglang", Registry([recipes]))
    with (
        workspace.reading(dry=True),
        pytest.raises(UsageError, match=r"target\.moods"),
    ):
        find_promises(workspace)


def reverted(folder: Path) -> Verdict:
    workspace = opened(folder)
    before = support.snapshot(folder)
    with workspace.reading(dry=True):
        found = check_revert(workspace)
    assert support.snapshot(folder) == before
    return found.verdict


def test_revert_on_a_scratch_copy(patched: Path) -> None:
    assert reverted(patched) is Verdict.PASS
    file = patched / "sglang" / DEEPSEEK
    file.write_bytes(file.read_bytes() + b"\n# mine\n")
    assert reverted(patched) is Verdict.PASS


def test_what_an_older_tap_made_is_only_reverted(
    patched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = {**tap_files(), f"{TAP_FOLDER}/settings.py": b"NEW = 1\n"}
    monkeypatch.setattr(registry, "tap_files", lambda: newer)
    workspace = opened(patched)
    with workspace.reading(dry=True):
        found = check_revert(workspace)
    assert found.verdict is Verdict.PASS
    assert "not applied again: debug-logging is outdated" in found.reason


def test_nothing_to_revert(tree: MakeTree) -> None:
    assert reverted(tree("0.5.9")) is Verdict.NOT_APPLICABLE


def test_an_edit_of_our_lines_fails_revert(patched: Path) -> None:
    file = patched / "sglang" / DEEPSEEK
    data = file.read_bytes()
    ours = b"patchkit_tap.begin("
    assert ours in data
    file.write_bytes(data.replace(ours, b"patchkit_tap.end(", 1))
    assert reverted(patched) is Verdict.FAIL
