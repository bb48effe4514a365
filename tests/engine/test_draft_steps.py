"""draft-step-positions in SGLang's own engine, in both workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import release_tree

from patchkit import engine
from patchkit.registry import Registry, load
from patchkit.verify import pair
from patchkit.verify.answers import measured
from patchkit.verify.engine_requests import write_requests
from patchkit.verify.interpreter import choose_python
from patchkit.verify.jobs import Job, module_name
from patchkit.verify.session import Session
from patchkit.verify.trees import CORE, write_overlay

RECIPE = load(next(i for i in Registry().near() if i.name == "draft-step-positions"))
V2 = {"SGLANG_ENABLE_SPEC_V2": "1"}


@pytest.mark.engines
@pytest.mark.parametrize("release", ["0.5.5", "0.5.9", "0.5.11"])
def test_both_workers_run_later_steps_at_the_right_positions(
    release: str, tmp_path: Path
) -> None:
    package = release_tree(release) / "sglang"
    paths = [*CORE, *RECIPE.edits]
    stock = {path: (package / path).read_bytes() for path in paths}
    patched = stock | {
        path: engine.apply(RECIPE, stock[path], path, {}).source
        for path in RECIPE.edits
    }
    scenario = write_requests(tmp_path)["engine-steps"]
    jobs = [
        Job(
            f"{whose}-{worker}",
            write_overlay(files, tmp_path / f"{whose}-{worker}"),
            scenario=scenario,
            environment=environment,
        )
        for whose, files in (("stock", stock), ("patched", patched))
        for worker, environment in (("v1", {}), ("v2", V2))
    ]
    python, _ = choose_python(package, None)
    modules = [module_name(path) for path in paths]
    with Session(python, package, modules, engine=True, timeout=240) as session:
        found = {
            one.job: measured(one, pair.VARIANTS["engine-steps"]).mean
            for one in session.run(jobs)
        }
    assert found == {
        "stock-v1": 2, "stock-v2": 2, "patched-v1": 4, "patched-v2": 4
    }  # fmt: skip
