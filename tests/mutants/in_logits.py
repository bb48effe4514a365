"""Mutants of the logits processor: pruning on each path, joining, what is stored."""

from __future__ import annotations

from mutation import LOGITS, Mutant, mutant

_CLASS = "LogitsProcessor"
_PLACES = ("_get_hidden_states_to_store", "forward")  # newer, older
_PRUNE = ("_get_pruned_states", "forward")
_WIDTH = 64  # of one state of the tiny model


def _in(
    places: tuple[str, ...], *edits: tuple[str, str]
) -> tuple[tuple[str, str, str], ...]:
    return tuple((f"{_CLASS}.{place}", *edit) for place in places for edit in edits)


def _joined(name: str, which: str, expression: str, by: str = "capture") -> Mutant:
    """``s``, the states that are joined (``hidden``: of all rows, ``pruned``: of the
    last), is joined by ``expression``."""
    states = f"aux_{which}_states"
    new = f"(lambda s: {expression})"
    split = f"([*pack_aux_hidden_states({states}).split({_WIDTH}, -1)])"
    edits = _in(
        _PLACES,
        (rf"torch\.cat\({states}, dim=-1\)", new + f"({states})"),
        (rf"= pack_aux_hidden_states\({states}\)", f"= {new}{split}"),
    )
    return mutant(name, LOGITS, by, *edits)


def _pruned(name: str, by: str, *edits: tuple[str, str], since: str = "") -> Mutant:
    return mutant(name, LOGITS, by, *_in(_PRUNE, *edits), since=since)


def _stored(name: str, by: str, *edits: tuple[str, str], since: str = "") -> Mutant:
    return mutant(name, LOGITS, by, *_in(_PLACES, *edits), since=since)


def _logits(name: str, by: str, rows: str) -> Mutant:
    """``p``: the rows of which the logits of a plain forward are computed."""
    return mutant(
        *(name, LOGITS, by),
        (
            f"{_CLASS}.forward",
            r"(extend_return_logprob:\n +#[^\n]*\n +logits = self\._get_logits\()"
            "pruned_states",
            rf"\1(lambda p: {rows})(pruned_states)",
        ),
    )


_LAST = r"last_index = torch\.cumsum\(logits_metadata\.extend_seq_lens, dim=0\) - 1"
_SLICE = r"\[pt \+ start_len : pt \+ extend_len\]"
_OF_AUX = r"(?<= )hidden" + _SLICE
_PACKED = r"aux_hidden_states" + _SLICE
_DECODE = r"\[hidden for hidden in aux_hidden_states\]$"
_PACKED_DECODE = (
    r"(aux_pruned_states = \(\n +)aux_hidden_states"
    r"(\n[^\n]*\n +else \[hidden for hidden)"
)
_JOIN = "torch.cat(s, -1)"
#: Up to 0.5.10 states for input log-probabilities are not pruned at all (the known
#: defect logprobs-last): that call raises, so what is wrong behind it is out of reach.
_SINCE = "0.5.11"

MUTANTS: tuple[Mutant, ...] = (
    # -- joining, all rows
    _joined("reversed", "hidden", "torch.cat(s[::-1], -1)"),
    _joined("rotated", "hidden", "torch.cat(s[1:] + s[:1], -1)"),
    _joined("first dropped", "hidden", "torch.cat(s[1:] or s, -1)"),
    _joined("last dropped", "hidden", "torch.cat(s[:-1] or s, -1)"),
    _joined("first doubled", "hidden", "torch.cat([*s, s[0]], -1)"),
    _joined("wrong axis", "hidden", "torch.cat(s, 0)"),
    _joined("interleaved", "hidden", "torch.stack(s, -1).flatten(-2)"),
    _joined("added up", "hidden", "sum(s)"),
    _joined("rows turned round", "hidden", f"{_JOIN}.flip(0)"),
    _joined("scaled", "hidden", f"{_JOIN} * 1.0001"),
    _joined("wider type", "hidden", f"{_JOIN}.double()", "capture gate-off"),
    _joined("all rows: a print", "hidden", f"(print(s[0]), {_JOIN})[1]", "gate-off"),
    _joined("all rows: formatted", "hidden", f"(repr(s[0]), {_JOIN})[1]", "gate-off"),
    _joined("all rows: a value read", "hidden",
            f"(s[0].isnan().any().item(), {_JOIN})[1]", "gate-off"),
    _joined("raises", "hidden", "1 // 0"),
    # -- joining, last rows
    _joined("last rows: reversed", "pruned", "torch.cat(s[::-1], -1)"),
    _joined("last rows: first dropped", "pruned", "torch.cat(s[1:] or s, -1)"),
    _joined("last rows: wrong axis", "pruned", "torch.cat(s, 0)"),
    _joined("last rows: turned round", "pruned", f"{_JOIN}.flip(0)"),
    _joined("last rows: interleaved", "pruned", "torch.stack(s, -1).flatten(-2)"),
    _joined("last rows: zeroed", "pruned", f"{_JOIN} * 0"),
    _joined("last rows: a print", "pruned", f"(print(s[0]), {_JOIN})[1]", "gate-off"),
    _joined("last rows: raises", "pruned", "1 // 0"),
    # -- which are stored
    _stored("output stored for the states", "capture",
            (r"hidden_states_to_store = aux_hidden_states$",
             "hidden_states_to_store = hidden_states"),
            (r"hidden_states_to_store = pack_aux_hidden_states\(aux_hidden_states\)",
             "hidden_states_to_store = hidden_states")),
    _stored("nothing stored", "capture",
            (r"if (logits_metadata\.capture_hidden_mode\.need_capture\(\))",
             r"if not \1")),
    _stored("last rows stored for all", "capture",
            (r"if logits_metadata\.capture_hidden_mode\.is_full\(\)",
             "if logits_metadata.capture_hidden_mode is None"),),
    _stored("all rows stored for the last", "capture",
            (r"(if logits_metadata\.capture_hidden_mode)\.is_full\(\)",
             r"\1.need_capture()")),
    _stored("states stored only without states", "capture",
            (r"(is_full\(\):\n +if aux_hidden_states is) not None", r"\1 None")),
    mutant("stored states not returned", LOGITS, "capture",
           (f"{_CLASS}.forward", r"(Decode mode or(?s:.*?)hidden_states=)"
            "hidden_states_to_store", r"\1None")),
    _stored("last of a prompt with log-probabilities: another row", "capture",
            (r"aux_pruned_states\[sample_indices\]",
             "aux_pruned_states[sample_indices - 1]"), since=_SINCE),
    _stored("last of a prompt with log-probabilities: all rows", "capture",
            (r"aux_pruned_states\[sample_indices\]", "aux_pruned_states"),
            since=_SINCE),
    # -- first path: decode (0.5.23 has both shapes, and runs the packed one)
    _pruned("decode: rows shifted", "capture",
            (_PACKED_DECODE, r"\1aux_hidden_states.roll(1, 0)\2"),
            (_DECODE, "[hidden.roll(1, 0) for hidden in aux_hidden_states]")),
    _pruned("decode: one row", "capture",
            (_PACKED_DECODE, r"\1aux_hidden_states[:1]\2"),
            (_DECODE, "[hidden[:1] for hidden in aux_hidden_states]")),
    _pruned("decode: columns turned round", "capture",
            (_PACKED_DECODE, r"\1aux_hidden_states.flip(-1)\2"),
            (_DECODE, "[hidden.flip(-1) for hidden in aux_hidden_states]")),
    # -- second path: the last rows of a prefill
    _pruned("prefill: last but one", "capture golden",
            (_LAST, r"\g<0> - 1")),
    _pruned("prefill: first rows", "capture golden",
            (_LAST, r"\g<0> * 0")),
    _pruned("prefill: lengths not summed up", "capture golden",
            (_LAST, "last_index = logits_metadata.extend_seq_lens - 1")),
    _pruned("prefill: other rows of the states", "capture",
            (r"= \[hidden\[last_index\] for", "= [hidden[last_index - 1] for"),
            (r"^( +)aux_hidden_states\[last_index\]$",
             r"\1aux_hidden_states[last_index - 1]")),
    _pruned("prefill: all rows of the states", "capture",
            (r"= \[hidden\[last_index\] for", "= [hidden for"),
            (r"^( +)aux_hidden_states\[last_index\]$", r"\1aux_hidden_states")),
    _pruned("prefill: other rows of the output", "golden",
            (r" pruned_states = hidden_states\[last_index\]",
             " pruned_states = hidden_states[last_index - 1]")),
    # -- third path: with input log-probabilities
    _pruned("log-probabilities: states from the start", "capture",
            (_PACKED, "aux_hidden_states[pt : pt + extend_len]"),
            (_OF_AUX, "hidden[pt : pt + extend_len]")),
    _pruned("log-probabilities: states shifted", "capture",
            (_PACKED, r"\g<0>.roll(1, 0)"),
            (_OF_AUX, r"\g<0>.roll(1, 0)")),
    _pruned("log-probabilities: output from the start", "gate-off",
            (r"(?<!\w)hidden_states" + _SLICE,
             "hidden_states[pt : pt + extend_len]")),
    _pruned("log-probabilities: rows not counted", "gate-off",
            (r"pt \+= extend_len$", "pt += extend_len - 1")),
    _pruned("log-probabilities: sampled row off", "gate-off",
            (r"sample_indices\.append\(sample_index_pt\)",
             "sample_indices.append(max(sample_index_pt - 1, 0))")),
    _pruned("log-probabilities: sampled rows counted from 0", "gate-off",
            (r"sample_index_pt = -1", "sample_index_pt = -2")),
    _pruned("log-probabilities: indices off", "gate-off",
            (r"input_logprob_indices_pt \+ i$", "input_logprob_indices_pt")),
    _pruned("log-probabilities: start ignored", "gate-off",
            (r"start_len = extend_logprob_start_len$", "start_len = 0")),
    _pruned("log-probabilities: path not taken", "gate-off",
            (r"and not logits_metadata\.extend_return_logprob", "and True")),
    # -- logits
    _logits("logits doubled", "golden", "p * 2"),
    # the sum of magnitudes is the same, and decode and prefill are wrong alike
    _logits("logits of the other request", "gate-off", "p.flip(0)"),
    _logits("logits not a number", "draft golden", "p * float('nan')"),
    _logits("a value read for the logits", "gate-off", "(p.sum().item(), p)[1]"),
    _logits("output changed in place", "golden", "p.mul_(1.1)"),
    # -- before anything runs
    mutant("does not parse", LOGITS, "import", ("", r"^import logging$", "import (")),
    mutant("imports what there is not", LOGITS, "import",
           ("", r"^import logging$", r"\g<0>\nimport nowhere")),
    # -- the taps in this file
    _stored("wrong tensor tapped", "gate-on",
            (r"(tap_concat(?s:(?!tap_concat).)*?\n +)"
             r"(aux_hidden_states|hidden_states_to_store),(  # patchkit)",
             r"\1\2 + 1,\3")),
    _stored("parts not counted", "gate-on",
            (r"tap_parts((?s:[^)]*?)\n +)aux_hidden_states,(  # patchkit)",
             r"tap_parts\1None,\2")),
    _stored("tap left out", "gate-on",
            (r"patchkit_tap\.tap_concat(\((?s:[^)]*?)\n +"
             r"(?:aux_hidden_states|hidden_states_to_store),  # patchkit)",
             r"print and \1")),
    _stored("tap changes its tensor", "gate-on",
            (r"(tap_concat(?s:(?!tap_concat).)*?\n +)"
             r"(aux_hidden_states|hidden_states_to_store),(  # patchkit)",
             r"\1\2.mul_(2),\3")),
)  # fmt: skip
