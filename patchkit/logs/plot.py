"""Draws row norms over steps and rows a second: PNG, or HTML that needs nothing else.

Colours are Okabe and Ito's, which colour-blind people tell apart; layers also differ by
marker and ranks by dash. More layers than colours: shades of cividis, named at the end
of their lines. Matplotlib is the optional extra ``plot``.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patchkit.errors import CannotRun, UsageError
from patchkit.logs.plotted import Plotted, Series

OKABE_ITO = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", ":", "-.")
#: Layers whose lines are named when there are more than colours.
_NAMED = 8


def check_plot(file: Path) -> None:
    """Raises UsageError and CannotRun before anything is read, not after."""
    if file.suffix not in (".png", ".html"):
        raise UsageError(
            f"--plot {file}: a plot is .png or .html", hint="give FILE.png or FILE.html"
        )
    if not file.parent.is_dir():
        raise UsageError(
            f"--plot {file}: there is no folder {file.parent}", hint="make it first"
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise CannotRun(
            "--plot needs matplotlib, which is not installed",
            hint="pip install 'sglang-patchkit[plot]'",
        ) from None


def draw(plotted: Plotted, file: Path) -> None:
    """Raises UsageError if ``file`` can't be written."""
    figure = _figure(plotted)
    kind = "png" if file.suffix == ".png" else "svg"
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=120)
    data = buffer.getvalue()
    if kind == "svg":
        data = _page(data[data.index(b"<svg") :].decode("utf-8")).encode("utf-8")
    try:
        file.write_bytes(data)
    except OSError as problem:
        raise UsageError(
            f"{file} can't be written: {problem.strerror}", hint="give another --plot"
        ) from None


def _page(svg: str) -> str:
    title = html.escape("patchkit logs")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>{title}</title>\n<style>body {{ margin: 1em }} svg {{ max-width: 100%;"
        f" height: auto }}</style></head>\n<body>\n{svg}\n</body></html>\n"
    )


def _figure(plotted: Plotted) -> Any:
    # not pyplot: it looks for a display and keeps figures in a global
    from matplotlib.figure import Figure

    sites = list(dict.fromkeys(key[0] for key in (*plotted.norms, *plotted.nonfinite)))
    count = max(len(sites) + bool(plotted.rates), 1)
    figure = Figure(figsize=(9.5, 3.9 * count), layout="constrained")
    axes = list(figure.subplots(count, 1, squeeze=False)[:, 0])
    for site, axis in zip(sites, axes):
        _norms(axis, plotted, site)
    if plotted.rates:
        _rates(axes[-1], plotted)
    if not sites and not plotted.rates:
        axes[0].text(0.5, 0.5, "no state was observed", ha="center", va="center")
        axes[0].set_axis_off()
    return figure


def _norms(axis: Any, plotted: Plotted, site: str) -> None:
    mine = {key[1:]: one for key, one in plotted.norms.items() if key[0] == site}
    bad = {key[1:]: one for key, one in plotted.nonfinite.items() if key[0] == site}
    both = {*mine, *bad}
    layers = sorted({layer for layer, _ in both}, key=lambda one: (one is None, one))
    ranks = sorted({rank for _, rank in both})
    few = len(layers) <= len(OKABE_ITO)
    named = set(layers if few else layers[:: max(len(layers) // _NAMED, 1)])
    for number, layer in enumerate(layers):
        colour = OKABE_ITO[number] if few else _shade(number / (len(layers) - 1))
        marker = _MARKERS[number] if few else ""
        for order, rank in enumerate(ranks):
            if (layer, rank) in mine:
                style = _DASHES[min(order, len(_DASHES) - 1)]
                _line(axis, mine[layer, rank], colour, style, marker, order)
            if (layer, rank) in bad:
                _not_finite(axis, bad[layer, rank], colour, number)
        if not few and layer in named and (layer, ranks[0]) in mine:
            x, _, y, _ = mine[layer, ranks[0]].points()[-1]
            axis.annotate(
                f" layer {layer}", (x, y), color=colour, fontsize=8, va="center"
            )
    axis.set_title(f"{site}: norm of a row", loc="left", fontsize=11)
    axis.set_xlabel("step of the model")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_ylabel("L2 norm (RMS over rows)")
    _plain(axis)
    _scale(axis, [point for one in mine.values() for point in one.points()])
    _norm_legend(axis, layers if few else [], ranks, bool(bad))


def _not_finite(axis: Any, series: Series, colour: Any, number: int) -> None:
    """Crosses along the lower edge, a row for each layer."""
    x = [one[0] for one in series.points()]
    height = 0.03 + 0.035 * (number % len(OKABE_ITO))
    axis.plot(
        x, [height] * len(x), linestyle="", marker="x", markersize=5, color=colour,
        transform=axis.get_xaxis_transform(), zorder=9,
    )  # fmt: skip


def _line(
    axis: Any, series: Series, colour: Any, style: str, marker: str, order: int
) -> None:
    points = series.points()
    x = [one[0] for one in points]
    if any(low < high for _, low, _, high in points):
        axis.fill_between(
            x, [one[1] for one in points], [one[3] for one in points], color=colour,
            alpha=0.15, linewidth=0,
        )  # fmt: skip
    # later ranks thinner and on top, so that equal lines show both
    axis.plot(
        x, [one[2] for one in points], color=colour, linestyle=style,
        linewidth=max(1.6 - 0.4 * order, 0.7), marker=marker, markersize=5,
        markevery=(order * 3, max(len(x) // 12, 1)), zorder=2 + order,
    )  # fmt: skip


def _norm_legend(
    axis: Any, layers: Sequence[int | None], ranks: Sequence[int], bad: bool
) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=OKABE_ITO[i], marker=_MARKERS[i], markersize=5,
               label=f"layer {'?' if layer is None else layer}")
        for i, layer in enumerate(layers)
    ]  # fmt: skip
    if len(ranks) > 1:
        last = len(_DASHES) - 1
        for i, rank in enumerate(ranks[: last + 1]):
            more = i == last and len(ranks) > last + 1
            handles.append(
                Line2D([], [], color="#555555", linestyle=_DASHES[i],
                       label=f"rank {rank}" + (f" to {ranks[-1]}" if more else ""))
            )  # fmt: skip
    if bad:
        cross = Line2D([], [], color="#555555", linestyle="", marker="x", markersize=5)
        cross.set_label("NaN or Inf")
        handles.append(cross)
    if handles:
        axis.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False
        )


def _rates(axis: Any, plotted: Plotted) -> None:
    start = min(one.points()[0][0] for one in plotted.rates.values() if one.points())
    sites = list(dict.fromkeys(site for site, _ in plotted.rates))
    ranks = sorted({rank for _, rank in plotted.rates})
    for (site, rank), rate in plotted.rates.items():
        points = rate.points()
        x = [time - start for time, _ in points] + [points[-1][0] - start + rate.width]
        y = [value for _, value in points] + [points[-1][1]]
        number, order = sites.index(site), ranks.index(rank)
        name = f"{site}" + (f", rank {rank}" if len(ranks) > 1 else "")
        axis.plot(
            x, y, drawstyle="steps-post", color=OKABE_ITO[number % len(OKABE_ITO)],
            linestyle=_DASHES[min(order, len(_DASHES) - 1)],
            linewidth=max(1.8 - 0.4 * order, 0.8), marker=_MARKERS[number % 7],
            markersize=5, markevery=(order, max(len(x) // 12, 1)),
            label=name if order < len(_DASHES) else None,
        )  # fmt: skip
    axis.set_title("rows (tokens) a second", loc="left", fontsize=11)
    axis.set_xlabel("seconds since the first record")
    axis.set_ylabel("rows / s")
    axis.set_ylim(bottom=0)
    _plain(axis)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)


def _scale(axis: Any, points: Sequence[tuple[float, float, float, float]]) -> None:
    """Logarithmic where norms span more than a factor of 30."""
    positive = [one[1] for one in points if one[1] > 0]
    if positive and max(one[3] for one in points) > 30 * min(positive):
        axis.set_yscale("log")
    else:
        axis.set_ylim(0, 1.1 * max((one[3] for one in points), default=1) or 1)


def _shade(part: float) -> Any:
    from matplotlib import colormaps

    # the lightest shades are too faint on white
    return colormaps["cividis"](0.9 * part)
