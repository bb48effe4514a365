"""gate-off, gate-on and bf16: the patched tree against the baseline, bit by bit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from patchkit.verify.evidence import Evidence, Promise, unusable
from patchkit.verify.jobs import Result
from patchkit.verify.judge import model, said
from patchkit.verify.verdict import Check, Tally, not_applicable

#: Calls that keep the last rows only: how many rows the logits processor joins in
#: between differs by release, so what a site sees there is not judged.
_NOT_JUDGED = "-last"
_STAMP = re.compile(r"^\[[-\d :,.]+\] ")

Row = Mapping[str, Any]


def judge_gate_off(evidence: Evidence) -> Check:
    if evidence.same:
        return not_applicable("gate-off", "nothing differs from the baseline")
    problem = unusable("gate-off", evidence, "patched", "baseline")
    if problem:
        return problem
    patched, baseline = evidence.one("patched"), evidence.one("baseline")
    assert patched is not None and baseline is not None
    tally = Tally()
    equal_outputs(tally, evidence, patched, baseline)
    silent(tally, patched, baseline)
    return tally.check(
        "gate-off", f"{len(patched.tensors)} outputs bit-equal, nothing said"
    )


def equal_outputs(
    tally: Tally, evidence: Evidence, ours: Result, theirs: Result
) -> None:
    """Bit for bit, with dtypes; and the same calls raise. What a recipe says that it
    changes is left out."""
    for name in sorted({*ours.tensors, *theirs.tensors}):
        if evidence.may_change(name):
            continue
        mine, yours = ours.tensors.get(name), theirs.tensors.get(name)
        if mine is None or yours is None:
            whose = "the baseline" if mine is None else "this tree"
            tally.expect(False, f"{name}: only {whose} has it")
        elif (mine.shape, mine.dtype) != (yours.shape, yours.dtype):
            tally.expect(
                False,
                f"{name}: {mine.dtype} {list(mine.shape)}, the baseline"
                f" {yours.dtype} {list(yours.shape)}",
            )
        else:
            tally.expect(
                mine.data == yours.data,
                f"{name}: off by {mine.distance(yours):.3g} from the baseline",
            )
    calls, stock = ours.calls(), theirs.calls()
    for name in {**calls, **stock}:
        if evidence.may_change(f"{name}.error"):
            continue
        mine_error = calls.get(name, {}).get("error", "not reached")
        error = stock.get(name, {}).get("error", "not reached")
        tally.expect(
            bool(mine_error) == bool(error),
            f"{name}: {mine_error or 'went well'}; the baseline:"
            f" {error or 'went well'}",
        )


def silent(tally: Tally, ours: Result, theirs: Result) -> None:
    """Says nothing, and reads no values, that the baseline does not."""
    stock = theirs.calls()
    known = {*map(_bare, theirs.facts.get("imported", ()))}
    early = [
        line for line in ours.facts.get("imported", ()) if _bare(line) not in known
    ]
    tally.expect(not early, f"prints when imported: {early[0]!r}" if early else "")
    for name, call in ours.calls().items():
        other = stock.get(name, {})
        new = [
            line
            for line in plain(call["printed"])
            if line not in set(plain(other.get("printed", ())))
        ]
        tally.expect(not new, f"{name}: prints {new[0]!r}" if new else "")
        tally.expect(not call["taps"], f"{name}: a tap writes with the gate off")
        more = _more_reads(call["reads"], other.get("reads", {}))
        tally.expect(not more, f"{name}: reads a tensor's values: {more}")


def plain(lines: Sequence[str]) -> list[str]:
    """Without time stamps and the numbers of lines."""
    return [re.sub(r"\d+", "0", _STAMP.sub("", line)) for line in lines]


def _bare(line: str) -> str:
    """Without paths too: a warning names the file, and ours lies elsewhere."""
    return re.sub(r"/\S+", "/", plain([line])[0])


def _more_reads(ours: Mapping[str, int], theirs: Mapping[str, int]) -> str:
    return ", ".join(
        name for name, count in sorted(ours.items()) if count > theirs.get(name, 0)
    )


def judge_gate_on(evidence: Evidence) -> Check:
    if not evidence.promises and "gate-on" not in evidence.fixed:
        return not_applicable("gate-on", _why_no_promises(evidence))
    problem = unusable("gate-on", evidence, "gated", "baseline")
    if problem:
        return problem
    gated, baseline = evidence.one("gated"), evidence.one("baseline")
    assert gated is not None and baseline is not None
    tally = Tally()
    equal_outputs(tally, evidence, gated, baseline)
    if "gate-on" in evidence.fixed:
        _prints_as_before(tally, gated, baseline)
    if not evidence.promises:
        return tally.check("gate-on", "outputs bit-equal, printed as before")
    spoke = speaks(tally, gated, evidence.promises)
    return tally.check(
        "gate-on", f"outputs bit-equal, {spoke} lines of {_sites(evidence)} true"
    )


def _prints_as_before(tally: Tally, gated: Result, baseline: Result) -> None:
    """Hand-written debug code behind a gate says with the gate on what it said."""
    for name, call in baseline.calls().items():
        now = gated.calls().get(name, {"printed": []})["printed"]
        tally.expect(
            set(plain(call["printed"])) <= set(plain(now)),
            f"{name}: with the gate on, a line that the baseline prints is missing",
        )


def _why_no_promises(evidence: Evidence) -> str:
    if not evidence.applied:
        known = "no recipe is applied"
        return known if evidence.same else "no journal says what is applied"
    return f"{', '.join(evidence.applied)} promises no site"


def _sites(evidence: Evidence) -> str:
    count = len(evidence.promises)
    return f"{count} site{'s' if count != 1 else ''}"


def speaks(tally: Tally, result: Result, promises: Sequence[Promise]) -> int:
    """Each promised site says, at each call, what the oracle saw; how many lines."""
    count = 0
    seen = result.facts["observations"]
    promised = {one.site for one in promises}
    for name, call in result.calls().items():
        failed = [line for line in call["printed"] if "tap failed" in line]
        tally.expect(not failed, f"{name}: {failed[0][-160:]}" if failed else "")
        strangers = sorted({line["site"] for line in call["taps"]} - promised)
        tally.expect(
            not strangers, f"{name}: {', '.join(strangers)} speaks unannounced"
        )
        if call["error"] or name.endswith(_NOT_JUDGED):
            continue
        for promise in promises:
            lines = [line for line in call["taps"] if line["site"] == promise.site]
            expected = [
                one
                for one in seen
                if one["call"] == name
                and one["site"] in promise.views
                and (promise.layers is None or one.get("layer") in promise.layers)
            ]
            if tally.expect(
                len(lines) == len(expected),
                f"{name}: {promise.site} spoke {len(lines)} times, not {len(expected)}",
            ):
                for line, one in zip(lines, expected):
                    count += 1
                    wrong = _differences(line, one)
                    where = f"{name}: {promise.site}"
                    tally.expect(not wrong, f"{where}: {wrong}")
    said.fit_together(tally, result)
    for promise in promises:
        spoke = any(
            line["site"] == promise.site
            for call in result.calls().values()
            for line in call["taps"]
        )
        tally.expect(spoke, f"{promise.site} never spoke")
    return count


def _differences(line: Row, seen: Row) -> str:
    """What the line says otherwise than the oracle saw; "" if nothing."""
    for key in ("shape", "dtype", "nonfinite", "layer", "parts", "in_features", "fc"):
        if key in seen and line.get(key) != seen[key]:
            return f"{key} {line.get(key)}, not {seen[key]}"
    for key in ("norm", "mean", "absmax"):
        said = line.get(key)
        if not isinstance(said, (int, float)) or not math.isclose(
            said, seen[key], rel_tol=1e-4, abs_tol=1e-6
        ):
            return f"{key} {said}, not {seen[key]:.6g}"
    return ""


def judge_bfloat16(evidence: Evidence) -> Check:
    name = "bf16"
    jobs = ["patched-bf16", "baseline-bf16"]
    if evidence.promises:
        jobs.append("gated-bf16")
    problem = unusable(name, evidence, *jobs)
    if problem:
        return problem
    patched, baseline = evidence.one(jobs[0]), evidence.one(jobs[1])
    assert patched is not None and baseline is not None
    tally = Tally()
    captures = patched.facts["captures"] or baseline.facts["captures"]
    if captures and "capture-removed" not in evidence.fixed:
        model.captures(tally, evidence, patched, baseline)
    model.drafts(tally, evidence, patched)
    model.decodes(tally, patched, "bfloat16")
    model.goldens(tally, evidence, patched, "bfloat16")
    if not evidence.same:
        equal_outputs(tally, evidence, patched, baseline)
        silent(tally, patched, baseline)
    gated = evidence.one("gated-bf16")
    if evidence.promises and gated is not None:
        equal_outputs(tally, evidence, gated, baseline)
        speaks(tally, gated, evidence.promises)
    return tally.check(name, f"{tally.compared} comparisons in bfloat16")
