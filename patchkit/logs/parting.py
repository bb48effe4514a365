"""A comparison as text for people and as JSON for programs. No I/O."""

from __future__ import annotations

import dataclasses
from typing import Any

from patchkit.logs.compare import Comparison
from patchkit.logs.text import short
from patchkit.report.style import Style


def comparison_text(found: Comparison, style: Style) -> str:
    one, other = found.names
    lines = [style(f"A {one}", "bold"), style(f"B {other}", "bold")]
    lines.append(
        f"  {found.joined:,} pairs of records, {len(found.saves):,} of saved tensors;"
        f" the same up to {found.tolerance:g}"
    )
    if found.by_site:
        lines += ["", style(f"  {'site':<30} {'layer':>5} {'same':>9} {'apart':>9}"
                            f" {'at most':>9}", "dim")]  # fmt: skip
    for (site, layer), joined in sorted(
        found.by_site.items(), key=lambda item: (item[0][0], item[0][1] or 0)
    ):
        apart = f"{joined.apart:>9,}"
        lines.append(
            f"  {site:<30} {'' if layer is None else layer:>5} {joined.same:>9,}"
            f" {style(apart, 'red') if joined.apart else apart} {joined.worst:>9.2%}"
        )
    lines.append("")
    for save in found.saves:
        where = "" if save["layer"] is None else f" layer {save['layer']}"
        word = "same" if save["same"] else style("apart", "red")
        some = f" ({save['rows']} of {save['all_rows']} rows)"
        lines.append(
            f"  saved {save['site']}{where} step {save['step']}: {word},"
            f" {save['relative']:.2%}, at most {short(save['largest'])}"
            + (some if save["rows"] < save["all_rows"] else "")
        )
    lines += _first(found, style)
    if found.alone:
        lines += ["", "could not be joined (only in A, only in B):"]
        lines += [
            f"  {what:<44} {ours:>9,} {theirs:>9,}"
            for what, (ours, theirs) in list(found.alone.items())[:20]
        ]
        if len(found.alone) > 20:
            lines.append(f"  and {len(found.alone) - 20} more")
    lines += [style(f"note: {one}", "dim") for one in found.notes[:20]]
    return "\n".join(lines)


def _first(found: Comparison, style: Style) -> list[str]:
    one = found.first
    if one is not None:
        layer = "" if one.layer is None else f", layer {one.layer}"
        return [
            f"{style('they part first', 'red', 'bold')} at"
            f" {style(one.site, 'bold')}{layer}, step {one.step}, rank {one.rank}:",
            f"  {one.text}",
            style(f"  at {one.here} and {one.there}", "dim"),
        ]
    if any(not save["same"] for save in found.saves):
        return [style("saved tensors differ", "red", "bold")]
    if not found.joined and not found.saves:
        return [
            style("nothing could be joined", "red", "bold"),
            "  the runs share no step, site, layer and rank with as many rows",
        ]
    return [style("they nowhere part", "green")]


def comparison_json(found: Comparison) -> dict[str, Any]:
    first = found.first
    return {
        "a": found.names[0],
        "b": found.names[1],
        "tolerance": found.tolerance,
        "joined": found.joined,
        "first": None
        if first is None
        else {
            "site": first.site,
            "layer": first.layer,
            "step": first.step,
            "rank": first.rank,
            "text": first.text,
            "a": {"file": first.here.file, "line": first.here.line},
            "b": {"file": first.there.file, "line": first.there.line},
        },
        "sites": [
            {"site": site, "layer": layer, **dataclasses.asdict(joined)}
            for (site, layer), joined in found.by_site.items()
        ],
        "not_joined": [
            {"what": what, "a": ours, "b": theirs}
            for what, (ours, theirs) in found.alone.items()
        ],
        "saved": found.saves,
        "notes": found.notes,
    }
