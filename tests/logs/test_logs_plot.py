"""Plots: thinned out without losing extremes; files that need nothing else."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logkit import SAMPLES, line, read, round_
from support import ROOT, run_patchkit

from patchkit.logs.plotted import POINTS, Rate, Series


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.integers(1, 200))
@settings(deadline=None, max_examples=50)
def test_a_thinned_series_keeps_its_extremes(values, times):
    series = Series()
    for x, y in enumerate(values * times):
        series.add(x, y)
    points = series.points()
    assert len(points) <= POINTS
    assert min(one[1] for one in points) == min(values)
    assert max(one[3] for one in points) == max(values)
    assert [one[0] for one in points] == sorted(one[0] for one in points)
    for _, low, mean, high in points:
        assert low * 0.999999 <= mean <= high * 1.000001


@given(st.lists(st.tuples(st.floats(0, 1e5), st.integers(1, 9)), min_size=1))
@settings(deadline=None, max_examples=50)
def test_rates_add_up(spoken):
    rate = Rate()
    for time, rows in spoken:
        rate.add(time, rows)
    assert len(rate.rows) <= POINTS
    total = sum(value * rate.width for _, value in rate.points())
    assert total == pytest.approx(sum(rows for _, rows in spoken))


def test_what_is_plotted():
    text = "".join(round_(step) for step in range(1, 7))
    text += round_(7).replace("nonfinite=0", "nonfinite=1")
    plotted = read(text, plot=True).plotted
    assert plotted is not None
    assert set(plotted.norms) == {("deepseek_v2.aux", one, 0) for one in (2, 30, 58)}
    first = plotted.norms["deepseek_v2.aux", 2, 0].points()
    assert [one[0] for one in first] == [1, 2, 3, 4, 5, 6]
    assert first[0][2] == pytest.approx(3 / 5**0.5)
    assert plotted.nonfinite["deepseek_v2.aux", 2, 0].points()[0][0] == 7
    # five rows in each forward of the target, counted once, a second each
    target = plotted.rates["deepseek_v2.aux", 0].points()
    assert [value for _, value in target] == [5.0] * 7


def test_without_matplotlib_the_extra_is_named(tmp_path):
    script = (
        "import sys; sys.modules['matplotlib'] = None;"
        "from patchkit.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    arguments = ["logs", str(SAMPLES / "sound.log"), "--plot", str(tmp_path / "x.png")]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 4
    assert "sglang-patchkit[plot]" in done.stderr
    assert not done.stdout


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib", reason="needs the plot extra")


def drawn(log, file):
    done = run_patchkit("logs", log, "--plot", file)
    assert done.returncode in (0, 1), done.stderr
    assert file.name in done.stderr
    return file.read_bytes()


def test_a_png(matplotlib, tmp_path):
    data = drawn(SAMPLES / "rank.log", tmp_path / "x.png")
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    assert width >= 1000 and height >= 800


def test_html_needs_nothing_from_elsewhere(matplotlib, tmp_path):
    page = drawn(SAMPLES / "nan.log", tmp_path / "x.html").decode()
    svg = page[page.index("<svg") : page.index("</svg>") + 6]
    tree = ElementTree.fromstring(svg)
    assert len(tree.findall(".//{http://www.w3.org/2000/svg}path")) > 20
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    assert not re.search(r"url\((?!#)", page)


def test_many_layers_and_ranks_and_nothing_at_all(matplotlib, tmp_path):
    many = tmp_path / "many.log"
    many.write_text(
        "".join(
            line("a.layer", rank=rank, step=step, layer=layer, norm=1.0 + layer)
            for step in range(1, 4)
            for rank in range(8)
            for layer in range(61)
        )
    )
    assert drawn(many, tmp_path / "many.png")
    assert drawn(SAMPLES / "off.log", tmp_path / "off.png")
