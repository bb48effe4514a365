"""What an engine generated and accepted, against the canary's closed form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchkit.canary import expect
from patchkit.canary.diagnose import diagnose
from patchkit.verify import pair
from patchkit.verify.answers import histogram, measured
from patchkit.verify.jobs import Result
from patchkit.verify.verdict import Tally


def diagnosed(tally: Tally, result: Result, variant: str) -> None:
    """What the canary makes of it, first of all; the rest is its evidence."""
    found = measured(result, pair.VARIANTS[variant])
    if not found.answers:
        return
    if found.states is not None:
        tally.compared += found.states.count
    verdict = diagnose(found)
    if tally.expect(verdict.right, verdict.text):
        return
    for text in verdict.evidence:
        tally.expect(False, f"seen: {text}")
    for fault in verdict.faults:
        tell = f"; to tell: {fault.tell}" if fault.tell else ""
        tally.expect(False, f"may be: {fault.what}{tell}")


def target_right(tally: Tally, result: Result, variant: str) -> None:
    """Greedy decoding gives the target's own tokens, whatever the draft proposes."""
    for one in pair.VARIANTS[variant].generate:
        entry = result.calls().get(one.name, {"error": "not reached"})
        if not tally.expect(not entry["error"], f"{one.name}: {entry['error']}"):
            continue
        for number, right in enumerate(one.continuations()):
            ids = entry["outputs"][number]["ids"]
            first = next(
                (n for n, (a, b) in enumerate(zip(ids, right)) if a != b), None
            )
            tally.expect(
                ids == right,
                f"{one.name}, prompt {number}: {len(ids)} tokens, of which the first"
                f" wrong is number {first}",
            )


def drafts_right(tally: Tally, result: Result, variant: str) -> None:
    for one in pair.VARIANTS[variant].generate:
        entry = result.calls().get(one.name, {"error": "not reached"})
        if entry["error"]:
            continue
        for number, (output, wanted) in enumerate(
            zip(entry["outputs"], one.accepted())
        ):
            said = f"{one.name}, prompt {number}"
            form = expect.histogram(wanted, pair.STEPS)
            told = histogram(output)
            tally.expect(told in (None, form), f"{said}: histogram {told}, not {form}")
            count = output["meta"].get("spec_verify_ct")
            tally.expect(
                count == len(wanted),
                f"{said}: {count} verifications for {one.tokens} tokens, not"
                f" {len(wanted)}",
            )
        together = [count for row in zip(*one.accepted()) for count in row]
        for _, rank, lines in ranks(result, one.name):
            # where the scheduler overlaps, one more may follow, of which nothing comes
            found = [count for line in lines for count in line["accepted"]]
            found = found[: len(together)]
            tally.expect(
                found == together,
                f"{one.name}, rank {rank}: the verifications accept {found}, not"
                f" {together}",
            )


def only_drafts_wrong(result: Result, variant: str) -> bool:
    target, drafts = Tally(), Tally()
    target_right(target, result, variant)
    drafts_right(drafts, result, variant)
    return not target.failures and bool(drafts.failures)


def nothing_refused(tally: Tally, result: Result) -> None:
    for call, _, lines in ranks(result):
        names = {one["name"] for line in lines for one in line["standins_called"]}
        tally.expect(not names, f"{call}: asks {', '.join(sorted(names))} in vain")


# -- facts --------------------------------------------------------------------------


def ranks(result: Result, only: str = "") -> Iterator[tuple[str, int, list[Any]]]:
    """Call, rank, and what that rank's verifications were."""
    for call, entry in result.calls().items():
        if not only or call == only:
            for rank, lines in enumerate(entry.get("ranks", {}).values()):
                yield call, rank, lines


def fused(result: Result) -> int:
    last = [lines[-1]["fused"] for _, _, lines in ranks(result) if lines]
    return max(last, default=0)


def length(result: Result) -> float:
    """Mean tokens a verification, the bonus token included."""
    rows = [row for _, rank, lines in ranks(result) if rank == 0 for row in lines]
    accepted = [count for row in rows for count in row["accepted"]]
    return 1 + sum(accepted) / len(accepted) if accepted else 0.0
