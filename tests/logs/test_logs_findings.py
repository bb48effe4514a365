"""What is found in logs that say what is wrong, and that nothing is found in others."""

from __future__ import annotations

import pytest
from logkit import HIDDEN, SAMPLES, draft, forward, found, line, read, round_

from patchkit.logs.checks.numbers import HISTORY
from patchkit.logs.finding import ERROR, NOTE, WARNING

# -- recorded runs of a patched 0.5.9, with faults planted --------------------

RECORDED = {
    "sound": {},
    "probe": {},
    "tp2": {},
    "ring": {},
    "reverse": {"states-reordered": "in another order"},
    "skip": {"fc-skipped": "although 3 states were captured"},
    "drop": {
        "states-changed": "not what was captured",
        "widths": "not as wide as its parts",
        "site-silent": "fc_out never spoke",
    },
    "double": {"states-changed": "not what was captured"},
    "stale": {"state-stale": "an earlier step"},
    "nan": {"non-finite": "first seen at deepseek_v2.aux"},
    "rank": {"ranks-disagree": "first at deepseek_v2.aux"},
    "late": {"wrong-layer": "the state called layer 2"},
    "off": {"nothing-spoke": "no tap spoke"},
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs(name):
    findings = read((SAMPLES / f"{name}.log").read_bytes()).findings
    first = {}
    for one in findings:
        first.setdefault(one.name, one.title)
    assert first.keys() == RECORDED[name].keys()
    for key, title in RECORDED[name].items():
        assert title in first[key]


def test_evidence_is_the_lines_that_show_it():
    data = (SAMPLES / "skip.log").read_bytes()
    (finding,) = read(data).findings
    lines = [data.split(b"\n")[one.line - 1] for one in finding.evidence[:3]]
    assert b"llama_eagle3.fc_in] rank=0 step=1 " in lines[0]
    assert b"fc=skipped" in lines[1]
    assert b"logits_processor.concat] rank=0 step=1 " in lines[2]
    assert (finding.step, finding.rank, finding.count) == (1, 0, 6)


# -- the states on their way --------------------------------------------------

SOUND = "".join(round_(step) for step in range(1, 6))


def test_a_sound_run():
    report = read(SOUND)
    assert report.findings == []
    # each target's tensor with its states, each draft's with the target's
    assert report.compared == {
        "states": 10, "states_not_comparable": 0, "between_ranks": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("joined", "name", "text"),
    [
        ((3.0, 7.0, 5.0), "states-reordered", "The order is now 1, 3, 2"),
        ((7.0, 5.0, 3.0), "states-reordered", "The order is now 3, 2, 1"),
        ((3.0, 3.0, 7.0), "states-changed", "3 5 7 as captured"),
        ((3.0, 5.0), "states-lost", "joined 2"),
        ((5.0,), "states-lost", "joined 1"),
        ((3.0, 5.0, 7.0, 7.0), "states-lost", "joined 4"),
    ],
)
def test_what_is_joined_is_not_what_was_captured(joined, name, text):
    finding = found(SOUND + forward(step=6, joined=joined))[name]
    assert text in finding.text
    assert (finding.severity, finding.step, finding.count) == (ERROR, 6, 1)
    # the joined tensor and the three states
    assert len(finding.evidence) == 4


def test_a_scaled_state_without_norms_of_segments():
    text = forward(step=1, joined=(3.0, 5.0, 7.7)).replace("segments=3+5+7.7 ", "")
    assert "norm 9.11" in found(text)["states-changed"].text


def test_pruned_rows_are_not_compared():
    text = forward(step=1, joined=(1.0, 2.0, 3.0)).splitlines(keepends=True)
    text[-1] = text[-1].replace("rows=5/8", "rows=2/8")
    report = read("".join(text) + draft(step=1, norms=(1.0, 2.0, 3.0), rows="2/8"))
    assert not report.findings
    assert report.compared["states_not_comparable"] == 1


@pytest.mark.parametrize(
    ("norms", "name", "text"),
    [
        ((5.0, 3.0, 7.0), "states-reordered", "The order is now 2, 1, 3"),
        ((3.0, 5.0, 9.0), "states-changed", "3 5 7 as joined"),
        ((3.0, 5.0), "states-lost", "192 columns were joined, but the draft got 128"),
    ],
)
def test_what_the_draft_gets_is_not_what_was_joined(norms, name, text):
    finding = found(SOUND + forward(step=6) + draft(step=16, norms=norms))[name]
    assert text in f"{finding.title} {finding.text}"
    assert (finding.site, finding.step) == ("llama_eagle3.fc_in", 16)


def test_accepted_rows_are_some_of_all():
    some = draft(step=1, norms=(1.0, 2.0, 3.0), rows="2/8")
    assert not found(forward(step=1) + some)
    more = draft(step=1, norms=(1.0, 2.0, 30.0), rows="2/8")
    finding = found(forward(step=1) + more)["states-changed"]
    assert "2 of the 5 rows have norm 30.0" in finding.text


def test_a_stale_tensor_is_recognised():
    text = "".join(
        forward(step=step, norms=(step, step + 1, step + 2)) for step in (1, 2)
    )
    report = found(
        text + draft(step=1, norms=(1.0, 2.0, 3.0)).replace("segments=", "s=")
    )
    assert "that of step 1 of deepseek_v2" in report["state-stale"].text


def test_rows_that_may_be_padding_are_not_compared():
    """In a graph without a mask, all rows of the buffer are counted."""
    got = draft(step=1, norms=(1.0, 9.0, 7.0), rows="8", captured=1)
    report = read(forward(step=1, rows="8") + got)
    assert not report.findings
    assert report.compared["states_not_comparable"] == 1


# -- fc -----------------------------------------------------------------------


def test_fc_skipped_on_the_targets_states():
    text = SOUND + forward(step=6) + draft(step=16, norms=(7.0,), fc="skipped")
    finding = found(text)["fc-skipped"]
    assert finding.title == "fc was skipped although 3 states were captured"
    assert "step 16 of llama_eagle3 on rank 0" in finding.text
    assert "192 columns" in finding.text


def test_fc_skipped_because_one_state_was_captured():
    text = forward(step=1, norms=(7.0,), layers=(58,))
    finding = found(text + draft(step=1, norms=(7.0,), fc="skipped"))["fc-skipped"]
    assert finding.title == "only one state was captured, so fc was skipped"


def test_a_draft_for_one_state_skips_fc_rightly():
    text = forward(step=1, norms=(7.0,), layers=(58,))
    got = draft(step=1, norms=(7.0,), fc="skipped").replace(
        f"in_features={3 * HIDDEN}", f"in_features={HIDDEN}"
    )
    assert not found(text + got)


def test_decode_steps_of_the_draft_skip_fc_rightly():
    """Also where the step that took the states was not said: every third, say."""
    steps = [
        forward(step=step) + draft(step=3 * step, norms=(4.0,), fc="skipped")
        for step in range(1, 40, 3)
    ]
    report = read("".join(steps))
    assert not report.findings
    assert report.compared["states_not_comparable"] == len(steps)


def test_a_mode_says_which_forward_takes_the_states():
    text = forward(step=1)
    assert not found(text + draft(step=1, norms=(4.0,), fc="skipped", mode="DECODE"))
    skipped = draft(step=7, norms=(4.0,), fc="skipped", mode="DRAFT_EXTEND")
    assert "DRAFT_EXTEND" in found(text + skipped)["fc-skipped"].text


def test_taps_that_are_silent_in_graphs_tell_no_order():
    note = "EAGLE3_DEBUG[llama_eagle3.fc_in] inside a CUDA graph: this tap is silent at"
    text = f"{note} replay\n" + forward(step=1)
    findings = found(text + draft(step=1, norms=(4.0,), fc="skipped"))
    assert "fc-skipped" not in findings
    assert findings["silent-in-graphs"].severity == WARNING


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (draft(step=1).replace("in_features=192", "in_features=200"), "whole number"),
        (draft(step=1).replace("in_features=192", "in_features=256"), "but got 192"),
        (forward(step=1).replace("64+64+64", "64+64+32"), "of different widths"),
        (forward(step=1).replace("64+64+64", "64+64"), "not as wide as its parts"),
    ],
)
def test_widths_that_do_not_fit(text, title):
    findings = [one for one in read(SOUND + text).findings if one.name == "widths"]
    assert [one.severity for one in findings] == [ERROR] * len(findings)
    assert any(title in one.title for one in findings)


# -- layers -------------------------------------------------------------------


def stream(step: int, norms: dict[int, float]) -> str:
    return "".join(
        line("deepseek_v2.layer", step=step, layer=layer, norm=norm)
        for layer, norm in norms.items()
    )


def test_a_state_is_the_stream_in_front_of_its_layer():
    norms = {2: 3.0, 3: 3.5, 30: 5.0, 58: 7.0}
    assert not found(stream(1, norms) + round_(1))
    finding = found(stream(1, norms | {2: 2.0, 3: 3.0}) + round_(1))["wrong-layer"]
    assert "in front of layer 2 has 2, and in front of layer 3 this one" in finding.text


def test_a_partial_sum_is_no_stream():
    norms = {2: 2.0, 30: 5.0, 58: 7.0}
    text = stream(1, norms).replace("rows=5/8", "rows=5/8 partial=1")
    assert not found(text + round_(1))


def test_layers_that_change():
    eager = "".join(round_(step) for step in (1, 2, 3))
    graphs = "".join(round_(step, layers=(2, 30, 57), captured=1) for step in (4, 5, 6))
    finding = found(eager + graphs)["layers-change"]
    assert "CUDA graphs capture other layers" in finding.title
    assert "layers 2 30 58 in 3 forwards; layers 2 30 57 in 3" in finding.text
    other = graphs.replace(" captured=1", "")
    assert "from forward to forward" in found(eager + other)["layers-change"].title


def test_a_cut_forward_at_the_end_is_no_change_of_layers():
    text = SOUND + "".join(forward(step=6).splitlines(keepends=True)[:2])
    assert not found(text)


def test_a_server_that_was_killed_and_started_again():
    cut = "".join(round_(6).splitlines(keepends=True)[:2])
    assert not found((SOUND + cut) * 3)


def test_forwards_with_lost_records_are_no_change_of_layers():
    some = "".join(forward(step=6).splitlines(keepends=True)[1:3])
    text = SOUND + some + some.replace("step=6", "step=7") + round_(8)
    assert "layers-change" in found(text)
    lost = "EAGLE3_DEBUG[ring] lost 4 records: the reader was slow\n"
    assert set(found(text + lost)) == {"records-lost"}


# -- ranks --------------------------------------------------------------------


def ranks(*factors: float, steps: int = 3, **words) -> str:
    return "".join(
        round_(step, rank=rank, norms=(3.0 * factor, 5.0, 7.0), **words)
        for step in range(1, steps + 1)
        for rank, factor in enumerate(factors)
    )


def test_ranks_that_agree():
    report = read(ranks(1, 1, 1.0001, 1))
    assert not report.findings
    assert report.compared["between_ranks"] == 3 * 3 * 10


def test_ranks_that_disagree():
    finding = found(ranks(1, 1, 1.01))["ranks-disagree"]
    assert "layer 2" in finding.text
    assert "norm 3 on rank 0, 3.03 on rank 2" in finding.text
    assert (finding.site, finding.step, finding.rank) == ("deepseek_v2.aux", 1, 2)


def test_tolerance():
    assert not found(ranks(1, 1.01), tolerance=0.02)


def test_ranks_with_batches_of_their_own_are_not_compared():
    text = ranks(1, 1.5) + round_(9) + round_(9, rank=1, rows="3/8")
    finding = found(text)["ranks-apart"]
    assert finding.severity == NOTE


def test_ranks_of_other_groups_are_not_compared():
    text = ranks(1, 1.5)
    for rank in (0, 1):
        text = text.replace(f"TP{rank}]", f"DP{rank} TP{rank}]")
    assert not found(text)


# -- values -------------------------------------------------------------------


def test_the_first_nan():
    text = SOUND + round_(6).replace("nonfinite=0", "nonfinite=17")
    finding = found(text)["non-finite"]
    assert "deepseek_v2.aux" in finding.title
    assert "step 6 of deepseek_v2 on rank 0, layer 2: 17 elements" in finding.text
    assert "llama_eagle3.fc_out 3" in finding.text


@pytest.mark.parametrize("factor", [1 / 5, 5])
def test_a_norm_outside_its_history(factor):
    usual = [line("a.layer", step=s, layer=9, norm=2 + s % 5) for s in range(1, 99)]
    odd = line("a.layer", step=99, layer=9, norm=(6 if factor > 1 else 2) * factor)
    finding = found("".join(usual) + odd)["norm-outside"]
    assert finding.severity == WARNING
    assert "step 99" in finding.text and "the 98 before it" in finding.text


def test_a_short_history_says_nothing():
    usual = [line("a.layer", step=s, layer=9, norm=2) for s in range(1, HISTORY)]
    odd = line("a.layer", step=99, layer=9, norm=1000)
    assert "norm-outside" not in found("".join(usual) + odd)


def test_modes_and_row_counts_have_histories_of_their_own():
    """A prompt's first token has a norm of its own, and more rows a larger norm."""
    text = ""
    for step in range(1, 200):
        rows = 1 + step % 8
        text += line("a.layer", step=step, layer=9, norm=2 * rows**0.5, rows=rows,
                     mode="DECODE")  # fmt: skip
    text += line("a.layer", step=200, layer=9, norm=5000, rows=8, mode="EXTEND")
    assert "norm-outside" not in found(text)


# -- sites and taps -----------------------------------------------------------


def test_a_site_that_never_spoke():
    text = "".join(
        one for one in SOUND.splitlines(keepends=True) if "llama_eagle3" not in one
    )
    finding = found(text)["site-silent"]
    assert finding.title == "llama_eagle3.fc_in and llama_eagle3.fc_out never spoke"
    assert finding.severity == WARNING
    without = read(text, head=b"server_args=ServerArgs(speculative_algorithm=None,")
    assert "there is no draft" in without.findings[0].text


def test_a_draft_whose_forward_raised_is_not_called_another_model():
    finding = read((SAMPLES / "drop.log").read_bytes()).findings[-1]
    assert finding.name == "site-silent"
    assert "the forward raised RuntimeError: mat1 and mat2 shapes" in finding.text
    assert "another model" not in finding.text


def test_a_rank_that_never_spoke():
    head = b"".join(
        f"[2026-01-01 00:00:00 TP{n}] Load weight begin.\n".encode() for n in range(3)
    )
    finding = found(ranks(1, 1), head=head)["rank-silent"]
    assert finding.title == "no tap spoke on rank 2"


def test_nothing_spoke_names_the_tree_that_the_server_imports():
    text = "/opt/other/sglang/srt/utils.py:3: UserWarning: x\nserver_args=ServerArgs(\n"
    finding = found(text)["nothing-spoke"]
    assert "patchkit status --target /opt/other/sglang" in finding.text
    assert finding.severity == ERROR


def test_nothing_spoke_but_graphs_were_captured():
    note = "EAGLE3_DEBUG[deepseek_v2.aux] inside a CUDA graph: speaks at replay\n"
    finding = found(note)["nothing-spoke"]
    assert "captured in CUDA graphs" in finding.text
    assert finding.evidence[0].line == 1


def test_a_tap_that_failed():
    note = "EAGLE3_DEBUG[deepseek_v2.aux] tap failed: ValueError: no\n"
    finding = found(SOUND + note + note)["tap-failed"]
    assert "ValueError: no" in finding.text
    assert (finding.severity, finding.count) == (ERROR, 2)


def test_lost_records_are_added_up():
    note = "EAGLE3_DEBUG[ring] lost 123 records: the reader was slow\n"
    finding = found(SOUND + note + note)["records-lost"]
    assert finding.title.startswith("246 records")
    assert (finding.severity, finding.count) == (WARNING, 2)


def test_bad_lines():
    finding = found(SOUND + "EAGLE3_DEBUG[a.aux] rank=0 st\n" * 3)["bad-lines"]
    assert (finding.count, finding.severity) == (3, WARNING)
    assert finding.evidence[0].line == SOUND.count("\n") + 1
