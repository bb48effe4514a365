"""kimi-wrapper: the vision wrapper around a DeepSeek-style target."""

from __future__ import annotations

from patchkit.verify.defects import is_known
from patchkit.verify.evidence import Evidence, unusable
from patchkit.verify.verdict import Check, Tally, not_applicable


def judge_wrapper(evidence: Evidence) -> Check:
    name = "kimi-wrapper"
    problem = unusable(name, evidence, "patched", "patched-kimi", "baseline-kimi")
    if problem:
        return problem
    plain, ours = evidence.one("patched"), evidence.one("patched-kimi")
    theirs = evidence.one("baseline-kimi")
    assert plain is not None and ours is not None and theirs is not None
    if not ours.facts["wrapper"] and not theirs.facts["wrapper"]:
        return not_applicable(name, "this release has no Kimi-K2.5")
    if not plain.facts["captures"]:
        return not_applicable(name, "this release captures no aux states")
    tally = Tally()
    if not tally.expect(ours.facts["wrapper"], "the wrapper's module is gone"):
        return tally.check(name, "")
    missing, defect = ours.facts["missing_delegates"], "kimi-delegates"
    if (
        missing
        and name not in evidence.fixed
        and missing == theirs.facts.get("missing_delegates")
        and is_known(defect, evidence.version)
    ):
        tally.known(defect)
    else:
        tally.expect(not missing, f"the wrapper lacks {', '.join(missing)}")
    unwritten = ours.facts["wrapper_unwritten"]
    tally.expect(not unwritten, f"no tensor reached {', '.join(unwritten[:3])}")
    if "shares_embedding" in ours.facts:
        tally.expect(
            ours.facts["shares_embedding"],
            "get_embed_and_head gives others than the language model's own",
        )
    for call in ours.facts["calls"]:
        tally.expect(not call["error"], f"{call['call']}: {call['error']}")
    for kind in ("logits", "states"):
        wrapped = ours.tensors.get(f"wrapped.{kind}")
        alone = plain.tensors.get(f"extend.{kind}")
        tally.expect(
            wrapped is not None and wrapped == alone,
            f"{kind} through the wrapper are not the language model's",
        )
    return tally.check(name, "bit-equal through the wrapper")
