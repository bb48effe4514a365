"""Rules on made-up evidence, and what is known of releases. No torch."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SAMPLE

from patchkit.draft import history
from patchkit.draft.checkpoint import Checkpoint, read_checkpoint
from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import CHECKS, Finding, Severity
from patchkit.draft.formats import Ids, flattened, language_fields, layer_ids, recognise
from patchkit.draft.gather import Case, questions
from patchkit.draft.maps import find_map
from patchkit.draft.rules import judge
from patchkit.draft.tree import Tree
from patchkit.fetch import fetch_wheel
from patchkit.fixtures import drafts, load

CLASS = "LlamaForCausalLMEagle3"


def tree(**changes) -> Tree:
    made = Tree(
        Path("/nowhere"),
        {CLASS: "llama_eagle3", "DeepseekV3ForCausalLM": "deepseek_v2"},
        frozenset({CLASS}),
        "eagle_config eagle_aux_hidden_state_layer_ids use_aux_hidden_state",
        ("explicit",),
    )
    return replace(made, **changes)


def answer(checkpoint: Checkpoint) -> dict:
    """Of a class that takes this checkpoint as it is."""
    load_ = {"dropped": ["t2d"], "errors": {}, "unwritten": {}, "cut": {}, "hot": None}
    return {
        "asked": CLASS,
        "type_known": True,
        "built": CLASS,
        "failed": "",
        "parameters": {},
        "attributes": {
            "fc": [64, 192],
            "embedding": [128, 64],
            "head": [64, 64],
            "tied": False,
            "hot_token_id": True,
            "head_from_target": False,
            "aux_states": 3,
            "captures": True,
        },
        "loads": [load_],
        "shared": {"embed": True, "head": False, "error": ""},
        "reads": list(checkpoint.config),
        "fc_for": {"64": "skipped", "128": "applied", "192": "applied"},
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Evidence:
    checkpoint = read_checkpoint(
        drafts.sglang().write(tmp_path_factory.mktemp("draft"))
    )
    return evidence(checkpoint)


def evidence(checkpoint: Checkpoint) -> Evidence:
    kind = recognise(checkpoint.config, checkpoint.tensors)
    said = answer(checkpoint)
    return Evidence(
        checkpoint=checkpoint,
        kind=kind,
        config=checkpoint.config,
        fields=flattened(checkpoint.config, kind),
        target=load("target"),
        target_class="DeepseekV3ForCausalLM",
        wrapper=False,
        algorithm="EAGLE3",
        version="0.5.23",
        tree=tree(),
        ids=layer_ids(checkpoint.config),
        asked=said,
        build=said,
        assumed="",
        layers={
            "failed": "",
            "methods": ["set_eagle3_layers_to_capture", "get_embed_and_head"],
            "embedding": [128, 64],
            "steps": [{"error": "", "layers": [2, 5, 7]}],
        },
        prefills={"failed": "", "steps": [{"error": "", "captured": [2, 5, 7]}]},
        d2t=find_map(checkpoint, "d2t"),
        t2d=find_map(checkpoint, "t2d"),
    )


def codes(found: Evidence, severity: Severity = Severity.ERROR) -> list[str]:
    return [one.code for one in judge(found)[0] if one.severity is severity]


def test_a_whole_one_has_no_errors(whole):
    findings, rows = judge(whole)
    assert not [one for one in findings if one.severity is Severity.ERROR]
    assert [row.check for row in rows] == list(CHECKS)


def test_an_error_says_what_a_run_does():
    with pytest.raises(AssertionError):
        Finding("fc", "x", Severity.ERROR, "")
    with pytest.raises(AssertionError):
        Finding("fc", "x", Severity.NOTE, "", outcome="tokens")


def test_a_target_of_another_family_is_judged_by_its_setter(whole):
    """Membership in the list is what every model's loop looks at."""
    found = replace(whole, prefills=None)
    assert codes(found) == []
    steps = [{"error": "", "layers": [7, 2, 5]}]
    unsorted = Ids([6, 1, 4], "eagle_config", True)
    other = replace(found, layers={**whole.layers, "steps": steps}, ids=unsorted)
    assert codes(other) == ["unsorted-ids"]
    steps = [{"error": "", "layers": [2, 5, 8]}]
    found = replace(found, layers={**whole.layers, "steps": steps})
    assert set(codes(found)) == {"unreachable-layer", "fc-input"}


def test_ids_elsewhere_that_mean_the_default_layers_are_a_warning(whole):
    steps = [{"error": "", "captured": [2, 4, 5]}]
    asked = {**whole.layers, "steps": [{"error": "", "layers": [2, 4, 5]}]}
    found = replace(whole, prefills={"failed": "", "steps": steps}, layers=asked)
    for ids, severity in (([1, 3, 4], Severity.WARNING), ([1, 3, 5], Severity.ERROR)):
        with_ids = replace(found, ids=Ids(ids, "layer_ids", False))
        assert "ids-not-read" in codes(with_ids, severity)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = sorted(
    {
        *drafts.sglang().config,
        *drafts.speculators().config,
        *drafts.kimi().config,
        *history.FIELDS,
        *("target_hidden_size", "eagle_aux_hidden_state_layer_ids", "text_config"),
        *("rope_parameters", "layer_ids", "transformer_layer_config"),
    }
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=5), st.booleans())
def test_no_config_is_a_traceback(whole, changes, of_target):
    """Whatever stands in config.json, the draft's or the target's."""
    config = {**whole.checkpoint.config, **({} if of_target else changes)}
    against = {**load("target"), **(changes if of_target else {})}
    checkpoint = replace(whole.checkpoint, config=config)
    questions(whole.tree, Case(checkpoint, against))
    found = replace(
        evidence(checkpoint), target=language_fields(against), fields=config
    )
    findings, rows = judge(found)
    assert len(rows) == len(CHECKS)
    assert all(len(one.text) < 400 for one in findings)


@pytest.mark.parametrize("release", SAMPLE)
def test_classes_are_there_from_the_release_that_is_said(release):
    with zipfile.ZipFile(fetch_wheel(release)) as wheel:
        models = [n for n in wheel.namelist() if n.startswith("sglang/srt/models/")]
        text = b"\n".join(wheel.read(name) for name in models if name.endswith(".py"))
    for name, first in history.CLASSES.items():
        defined = re.search(rf"^class {name}\b".encode(), text, re.MULTILINE)
        assert bool(defined) == (_key(release) >= _key(first)), name


@pytest.mark.parametrize("release", SAMPLE)
def test_fields_are_read_from_the_release_that_is_said(release):
    folders = ("srt/model_executor/", "srt/speculative/", "srt/models/llama_eagle3")
    with zipfile.ZipFile(fetch_wheel(release)) as wheel:
        text = b"\n".join(
            wheel.read(name)
            for name in wheel.namelist()
            if name.startswith(tuple(f"sglang/{one}" for one in folders))
        )
    for name, first in history.FIELDS.items():
        read = re.search(rb"\b" + name.encode() + rb"\b", text) is not None
        assert read == (bool(first) and _key(release) >= _key(first)), name


def _key(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))
