"""The draft's vocabulary, and the maps to the target's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from patchkit.draft.evidence import Evidence
from patchkit.draft.finding import Finding, Row, Severity
from patchkit.draft.formats import number

CHECK = "vocabulary"
_DIFFERENCES = "d2t holds differences: token = draft token + d2t[draft token]"
_REBUILD = "rebuild d2t as target id minus draft id"


def judge(evidence: Evidence) -> Iterator[Finding | Row]:
    if not evidence.built:
        yield Row(CHECK, skipped="the class was not built: see architecture")
        return
    head, vocabulary = (
        evidence.attributes["head"],
        number(evidence.target, "vocab_size"),
    )
    if not evidence.eagle3 or head is None or vocabulary is None:
        yield Row(CHECK, skipped="no head of its own, or no vocab_size in --against")
        return
    rows = head[0]
    own = number(evidence.fields, "vocab_size")
    if own is not None and own != vocabulary:
        yield _warn(
            "vocabularies-differ",
            f"vocab_size is {own}, the target's {vocabulary}",
            "is it a draft for this target?",
        )
    if evidence.shared["head"]:
        rows = vocabulary
    if evidence.d2t is None:
        if rows < vocabulary:
            yield _error(
                "map-missing",
                f"the draft has {rows} of the target's {vocabulary} tokens, and no d2t"
                " says which: its tokens are taken for the target's first",
                (),
                "the checkpoint is not whole, or d2t was renamed: find it",
                "tokens",
            )
        yield from _spare(evidence, rows)
        yield Row(CHECK, f"{rows} tokens, the target's own; no map is needed")
        return
    yield from _map(evidence, rows, vocabulary)
    yield from _spare(evidence, rows)
    yield Row(CHECK, f"{rows} tokens of the target's {vocabulary}; d2t says which")


def _map(evidence: Evidence, rows: int, vocabulary: int) -> Iterator[Finding]:
    assert evidence.d2t is not None
    tensor, values = evidence.d2t.tensor, evidence.d2t.values
    length = tensor.shape[0] if tensor.shape else 0
    if tensor.name in evidence.load["dropped"]:
        yield _error(
            "map-not-read",
            f"{tensor.name} is not read by {evidence.build['built']}",
            (),
            "call it d2t",
            "tokens",
        )
        return
    if tensor.dtype[0] not in "IU":
        yield _error(
            "map-dtype",
            f"d2t is {tensor.dtype}: token ids made of it are no integers",
            (),
            "store it as int64",
            "stops:tokens",
        )
        return
    if length < rows:
        yield _error(
            "map-length",
            f"d2t has {length} entries for {rows} rows of the head",
            ("a draft token behind its end is looked up out of bounds",),
            "head and map are of different vocabularies: take both from one training",
            "stops:tokens",
        )
    elif length > rows:
        yield _warn(
            "map-longer",
            f"d2t has {length} entries for {rows} rows of the head",
            "are head and map of one training?",
        )
    if tensor.dtype not in ("I64",):
        yield _warn("map-narrow", f"d2t is {tensor.dtype}, not int64", "store it as"
                    " int64")  # fmt: skip
    if values is None:
        return
    yield from _values(evidence, list(map(int, values)), rows, vocabulary)


def _values(
    evidence: Evidence, values: Sequence[int], rows: int, vocabulary: int
) -> Iterator[Finding]:
    tokens = [index + step for index, step in enumerate(values)]
    outside = [one for one in tokens[:rows] if not 0 <= one < vocabulary]
    if outside or _absolute(evidence, values, tokens):
        absolute = _absolute(evidence, values, tokens)
        text = (
            "d2t holds the target's ids where SGLang expects differences"
            if absolute
            else f"d2t leads to token {max(outside, key=abs)}, outside of {vocabulary}"
        )
        lines = [_DIFFERENCES]
        if outside:
            lines.append(f"{len(outside)} tokens lie outside of the vocabulary")
        yield _error(
            "map-absolute" if absolute else "map-range", text, tuple(lines), _REBUILD,
            "stops:tokens" if outside else "tokens",
        )  # fmt: skip
        return
    if len(set(tokens)) < len(tokens):
        yield _warn(
            "map-repeats",
            f"{len(tokens) - len(set(tokens))} draft tokens stand for a token that"
            " another stands for",
            _REBUILD,
        )
    if rows < vocabulary and not any(values):
        text = f"d2t is all zeros: the draft's tokens are the target's first {rows}"
        if _marked(evidence) not in (None, set(tokens)):
            said = (_DIFFERENCES, "t2d marks others")
            yield _error("map-zero", text, said, _REBUILD, "tokens")
            return
        yield _warn("map-zero", text, "is that how it was trained?")
    yield from _other(evidence, tokens, vocabulary)


def _marked(evidence: Evidence) -> set[int] | None:
    """The target's tokens that t2d marks; ``None``: there is none to read."""
    if evidence.t2d is None or evidence.t2d.values is None:
        return None
    return {index for index, one in enumerate(evidence.t2d.values) if one}


def _absolute(evidence: Evidence, values: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether d2t itself is the list of ids that t2d marks, or looks like one."""
    rising = all(a < b for a, b in pairwise(values))
    if not rising or len(values) < 2:
        return False
    known = _marked(evidence)
    if known is None:
        return max(tokens) >= (number(evidence.target, "vocab_size") or 0)
    return set(values) == known and set(tokens) != known


def _other(
    evidence: Evidence, tokens: Sequence[int], vocabulary: int
) -> Iterator[Finding]:
    """t2d, which no release reads, but which says what d2t should."""
    if evidence.t2d is None or evidence.t2d.values is None:
        return
    marks = evidence.t2d.values
    if len(marks) != vocabulary:
        yield _warn(
            "marks-length",
            f"t2d has {len(marks)} entries, the target's vocabulary {vocabulary}",
            "is it a draft for this target?",
        )
        return
    known = _marked(evidence) or set()
    if known != set(tokens):
        yield _warn(
            "maps-disagree",
            f"t2d marks {len(known)} tokens, d2t leads to {len(set(tokens))};"
            f" {len(known ^ set(tokens))} are in one only",
            "one of them is of another training; SGLang reads d2t only",
        )


def _spare(evidence: Evidence, rows: int) -> Iterator[Finding]:
    said = evidence.fields.get("draft_vocab_size")
    vocabulary = number(evidence.target, "vocab_size") or 0
    if isinstance(said, int) and said > vocabulary:
        yield _warn(
            "larger-vocabulary",
            f"draft_vocab_size is {said}, more than the target's {vocabulary}",
            "is it a draft for this target?",
        )


def _error(
    code: str, text: str, lines: tuple[str, ...], todo: str, outcome: str
) -> Finding:
    return Finding(CHECK, code, Severity.ERROR, text, lines, todo=todo, outcome=outcome)


def _warn(code: str, text: str, todo: str) -> Finding:
    return Finding(CHECK, code, Severity.WARNING, text, todo=todo)
