"""The recipes that findings name: with them the same checkpoint fits, or says so."""

from __future__ import annotations

import draftkit
import pytest
from faults import FAULTS
from support import release_tree

from patchkit.registry import Registry
from patchkit.workspace.planner import plan_apply
from patchkit.workspace.tree import Workspace

pytestmark = [
    pytest.mark.probe,
    pytest.mark.skipif(
        draftkit.probe_python() is None, reason="needs the verify extra"
    ),
]

#: release, fault, the recipe that its finding names, its options -> errors left
HELP = {
    ("0.5.9", "good-sglang", "keep-layer-ids"): [],
    ("0.5.9", "behind-the-kimi-wrapper", "kimi-k25-eagle3"): ["graphs-differ"],
    ("0.5.23", "ids-unsorted", "sort-layer-ids", "order=asked"): [],
    ("0.5.23", "id-of-the-embedding", "embedding-capture"): [],
    ("0.5.23", "one-id", "fc-guard"): ["fc-input"],
    ("0.5.23", "layer-called-blocks-0", "weight-guard"): ["load-fails"],
}


@pytest.mark.parametrize("case", HELP, ids=" ".join)
def test_a_recipe_helps(case, tmp_path):
    """And what is said of the patched tree is what a run of it does."""
    release, name, recipe, *options = case
    chosen = dict(one.split("=") for one in options)
    fault = {name: FAULTS[name]}
    registry = Registry()
    workspace = Workspace(release_tree(release) / "sglang", registry)
    with workspace.reading(dry=True):
        overlay = plan_apply(workspace, [(registry.get(recipe), chosen)]).writes
    assert overlay
    seen = draftkit.run_faults(release, tmp_path, fault, overlay=overlay)[name]
    assert seen.codes == HELP[case]
    assert not draftkit.disagreements(seen)
