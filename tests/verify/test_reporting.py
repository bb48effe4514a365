"""Reports: exit codes, the table, JSON, JUnit XML and GitHub's lines."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import pytest

from patchkit.report.style import Style
from patchkit.verify.defects import DEFECTS, release_key
from patchkit.verify.formats import github_lines, report_json, report_junit
from patchkit.verify.run import Report
from patchkit.verify.text import report_text
from patchkit.verify.verdict import Check, Tally, Verdict, cannot_run, not_applicable

PASS = Check("import", Verdict.PASS, "8 modules", compared=8, seconds=7.25)
FAIL = Check(
    "capture",
    Verdict.FAIL,
    "extend: captured layer 1, layer 4, layer 6; wanted layers [2, 5, 7] (and 1 more)",
    ("extend: captured layer 1, layer 4, layer 6; wanted layers [2, 5, 7]", "x" * 200),
    compared=10,
)
KNOWN = Check(
    "fusion", Verdict.PASS, "ok", defects=("capture-before-all-reduce",), compared=3
)
ABSENT = not_applicable("gate-on", "no recipe is applied")
STUCK = cannot_run("draft", "distributed: \x1b[31mno & <route>\x1b[0m", ("at a", "b%"))
HUNG = Check("draft", Verdict.FAIL, "hung", hung=True)
INFO = {"torch": "2.13.0", "transformers": "5.19.0", "python": "3.11.7"}


def report(*checks: Check) -> Report:
    return Report(
        version="0.5.9",
        package="/a/path/that/is/not/short/site-packages/sglang",
        python="/usr/bin/python3",
        why_python="this interpreter",
        baseline="journal",
        applied=("debug-logging",),
        checks=checks,
        info=INFO,
        seconds=12.5,
        peak_mb=377,
    )


@pytest.mark.parametrize(
    ("checks", "strict", "code"),
    [
        ((PASS,), False, 0),
        ((PASS, ABSENT), False, 0),
        ((PASS, KNOWN), False, 0),
        ((PASS, KNOWN), True, 1),
        ((PASS, FAIL, STUCK), False, 1),
        ((PASS, STUCK), False, 4),
        ((ABSENT,), False, 4),
        ((PASS, HUNG), False, 5),
    ],
)
def test_exit_codes(checks: tuple[Check, ...], strict: bool, code: int) -> None:
    assert report(*checks).exit_code(strict=strict) == code


@pytest.mark.parametrize("strict", [False, True])
def test_the_table_fits_80_columns(strict: bool) -> None:
    everything = report(PASS, FAIL, KNOWN, ABSENT, STUCK)
    text = report_text(everything, Style(False), strict=strict)
    lines = text.splitlines()
    assert all(len(line) < 80 for line in lines[1:] if "x" * 50 not in line)
    assert "check           verdict        seconds" in lines
    assert "seconds: of the longest run that the check needs" in text
    for verdict in Verdict:
        assert verdict.value in text
    assert "known defect: capture-before-all-reduce" in text
    assert "wanted layers [2, 5, 7]" in " ".join(text.split())
    # with --strict a known defect is a FAIL in its row, too
    counts = "1 PASS, 2 FAIL" if strict else "2 PASS, 1 FAIL"
    assert lines[-2].startswith(f"FAIL: {counts}, 1 NOT APPLICABLE, 1 CANNOT RUN")
    assert "--strict" in text


TRACE = (
    "Traceback (most recent call last):",
    '  File "/a/long/path/' + "deep/" * 12 + 'parallel_state.py", line 936, in start',
    "RuntimeError: it says that " + "something is missing, and " * 9 + "more",
)


def test_a_log_is_wrapped_and_told_once() -> None:
    one = cannot_run("import", "distributed: RuntimeError", TRACE)
    text = report_text(
        report(one, replace(one, name="draft")), Style(False), strict=False
    )
    lines = text.splitlines()
    assert all(len(line) < 80 for line in lines[1:])
    said = "".join(
        line.partition("| ")[2].strip() for line in lines if "    | " in line
    )
    assert re.sub(r"\s", "", "".join(TRACE)) in re.sub(r"\s", "", said)
    assert text.count("RuntimeError: it says") == 1
    assert "    | as under import" in lines


def test_the_folders_of_the_run_are_left_out() -> None:
    trace = (
        '  File "/tmp/patchkit-verify-a_1b/import/patchkit/verify/probe/x.py", line 1',
        '  File "/var/tmp/patchkit-overlay-2c/patched/srt/models/y.py", line 2',
    )
    stuck = cannot_run("import", "x", trace)
    text = report_text(report(stuck), Style(False), strict=False)
    assert '    |   File "patchkit/verify/probe/x.py", line 1' in text
    assert '    |   File "patched/srt/models/y.py", line 2' in text


def test_where_it_ran() -> None:
    def head(**more: Any) -> str:
        one = replace(report(PASS), info={**INFO, "device": "cuda", **more})
        return " ".join(report_text(one, Style(False), strict=False).split())

    assert " on c" not in " ".join(
        report_text(report(PASS), Style(False), strict=False).split()
    )
    found = head(devices=1, device_name="H200", kernels=False, fresh="")
    assert "on cuda, H200: SGLang's path without compiled kernels, CUDA hidden" in found
    found = head(devices=2, device_name="H200", kernels=True, fresh="it would not")
    assert "on cuda, H200 and 1 more: SGLang's own compiled kernels, each run" in found
    shims = ["sgl_kernel: a stand-in, since what is installed fails: ImportError: x"]
    assert shims[0] in head(
        devices=1, device_name="H", kernels=False, fresh="", shims=shims
    )


def test_colour_changes_no_layout() -> None:
    everything = report(PASS, FAIL, KNOWN, ABSENT, STUCK)
    coloured = report_text(everything, Style(True), strict=False)
    assert "\x1b" in coloured
    plain = report_text(everything, Style(False), strict=False)
    bare = re.compile(r"\x1b\[[\d;]*m")
    assert bare.sub("", coloured) == bare.sub("", plain)


def test_colour_only_where_asked() -> None:
    assert "\x1b" not in report_text(report(PASS, FAIL), Style(False), strict=False)
    assert "\x1b" in report_text(report(PASS, FAIL), Style(True), strict=False)


def test_json_counts_what_ran() -> None:
    value = json.loads(
        json.dumps(report_json(report(PASS, FAIL, KNOWN, ABSENT), strict=False))
    )
    assert value["counts"] == {
        "PASS": 2,
        "FAIL": 1,
        "NOT APPLICABLE": 1,
        "CANNOT RUN": 0,
        "compared": 21,
        "known defects": 1,
    }
    assert value["exit_code"] == 1
    assert value["checks"][2]["known_defects"][0]["name"] == KNOWN.defects[0]


@pytest.mark.parametrize(("strict", "failures"), [(False, 1), (True, 2)])
def test_junit_parses(strict: bool, failures: int) -> None:
    everything = report(PASS, FAIL, KNOWN, ABSENT, STUCK)
    suite = ElementTree.fromstring(report_junit(everything, strict=strict))[0]
    assert suite.attrib["tests"] == "5"
    assert suite.attrib["failures"] == str(failures)
    assert (suite.attrib["errors"], suite.attrib["skipped"]) == ("1", "1")
    kinds = [[child.tag for child in case] for case in suite]
    assert kinds[1] == ["failure"] and kinds[3:] == [["skipped"], ["error"]]
    assert suite[4][0].attrib["message"] == "distributed: [31mno & <route>[0m"


def test_github_lines() -> None:
    checks = report(PASS, KNOWN, Check("draft", Verdict.FAIL, "100% wrong\nhere"))
    warning, error = github_lines(checks, strict=False)
    assert warning.startswith("::warning title=patchkit verify fusion::known defect")
    assert error == "::error title=patchkit verify draft::FAIL: 100%25 wrong%0Ahere"
    assert github_lines(checks, strict=True)[0].startswith("::error")


def test_a_tally_of_nothing_is_no_pass() -> None:
    assert Tally().check("x", "fine").verdict is Verdict.CANNOT_RUN


def test_a_tally_names_the_first_failure() -> None:
    tally = Tally()
    tally.expect(True, "a")
    for one in "bcd":
        tally.expect(False, one)
    check = tally.check("x", "fine")
    assert (check.reason, check.details) == ("b (and 2 more)", ("b", "c", "d"))
    assert check.compared == 4


def test_releases_in_order() -> None:
    names = ["0.4.6", "0.5.4", "0.5.4.post2", "0.5.9", "0.5.10", "0.5.10.post1"]
    keys = [release_key(one) for one in names]
    assert keys == sorted(keys, key=lambda key: key or ())
    assert release_key("0.5.6.dev3") is None and release_key("unknown") is None
    assert release_key("0.5.9+cu129") == release_key("0.5.9")


def test_defects_name_their_check_and_releases() -> None:
    from patchkit.verify.checks import CHECKS

    for name, one in DEFECTS.items():
        assert one.name == name and one.check in CHECKS
        assert re.fullmatch(r"[\w-]+", name)
        # without a last release it is in the newest, too
        assert not one.last or release_key(one.first) <= release_key(one.last)
