"""``patchkit check-draft`` as it is typed: text, JSON, JUnit, exit codes, --with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET

import draftkit
import pytest
from faults import FAULTS
from support import release_tree, run_patchkit, snapshot

from patchkit.fixtures import drafts, load

needs_probe = pytest.mark.skipif(
    draftkit.probe_python() is None, reason="needs the verify extra"
)


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(load("target")))
    return folder


@pytest.fixture
def check(target):
    """Runs the command on a draft's folder, under one release."""

    def run(folder, *more, release="0.5.9", against=target):
        where = release_tree(release)
        named = ["--against", against, "--target", where]
        env = {"PATCHKIT_PROBE_PYTHON": draftkit.probe_python() or ""}
        return run_patchkit("check-draft", folder, *named, *more, env=env)

    return run


# -- what needs no SGLang -----------------------------------------------------------


def write_broken(name, folder):
    draft = drafts.sglang().write(folder, shards=2)
    shard, index = (
        sorted(draft.glob("*.safetensors"))[0],
        draft / ("model.safetensors.index.json"),
    )
    if name == "truncated":
        shard.write_bytes(shard.read_bytes()[:-100])
    elif name == "lying header":
        shard.write_bytes((1 << 50).to_bytes(8, "little") + shard.read_bytes()[8:])
    elif name == "missing shard":
        shard.unlink()
    elif name == "config that is no JSON":
        (draft / "config.json").write_text("{'single': 'quotes'}")
    elif name == "too deep":
        draft_config = {**drafts.sglang().config, "num_hidden_layers": 1 << 40}
        (draft / "config.json").write_text(json.dumps(draft_config))
    elif name == "byte-order mark":
        text = (draft / "config.json").read_bytes()
        (draft / "config.json").write_bytes(b"\xef\xbb\xbf" + text)
    elif name == "nothing":
        for file in draft.iterdir():
            file.unlink()
    elif name == "zeros":
        with open(shard, "wb") as file:
            os.truncate(file.fileno(), 100 << 30)
    elif name == "traversal":
        index.write_text(json.dumps({"weight_map": {"a": "../../../etc/passwd"}}))
    return draft


@pytest.mark.parametrize(
    "name",
    [
        "truncated",
        "lying header",
        "missing shard",
        "config that is no JSON",
        "too deep",
        "byte-order mark",
        "nothing",
        "zeros",
        "traversal",
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_bad_input_is_refused(name, as_json, check, tmp_path):
    draft = write_broken(name, tmp_path / "draft")
    done = check(draft, *(["--json"] if as_json else []))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr + done.stdout
    if as_json:
        assert json.loads(done.stdout)["error"]["hint"]
    else:
        assert not done.stdout
        assert "error:" in done.stderr and "next:" in done.stderr


def test_usage(check, tmp_path):
    draft = drafts.sglang().write(tmp_path / "draft")
    for done in (
        check(tmp_path / "none"),
        check(draft, against=tmp_path / "none"),
        check(draft, "--algorithm", "MEDUSA"),
        check(draft, "--with", "no-such-recipe"),
        check(draft, "--fix-names", draft),
        check(draft, "--fix-names", draft / "inside"),
        check(draft, "--junit", tmp_path / "none" / "x.xml"),
    ):
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr


# -- the answer ---------------------------------------------------------------------


@needs_probe
def test_the_report(check, tmp_path, target):
    draft = FAULTS["layer-called-layers-0"].draft().write(tmp_path / "draft")
    before = snapshot(release_tree("0.5.9"))
    done = check(draft, "--junit", tmp_path / "report.xml")
    assert done.returncode == 1, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout
    assert "ERROR names-dropped" in done.stdout
    assert "layers.0.* -> midlayer.*" in done.stdout
    assert "CUDA graphs capture layers 2,4,5, prefill 2,5,7" in done.stdout
    assert "--with keep-layer-ids" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(("DOES NOT FIT", "  "))
    assert snapshot(release_tree("0.5.9")) == before
    suite = ET.parse(tmp_path / "report.xml").getroot()[0]
    assert suite.get("failures") == "2" and suite.get("tests") == "9"
    failed = {case.get("name") for case in suite if case.find("failure") is not None}
    assert failed == {"weights", "layers"}


@needs_probe
def test_json_and_what_a_recipe_would_do(check, tmp_path, target):
    """A config.json by itself is enough of a target."""
    draft = drafts.sglang().write(tmp_path / "draft")
    against = target / "config.json"
    stock = check(draft, "--json", against=against)
    value = json.loads(stock.stdout)
    assert (stock.returncode, value["exit_code"], value["fits"]) == (1, 1, False)
    (error,) = [one for one in value["findings"] if one["severity"] == "ERROR"]
    assert error["code"] == "graphs-differ"
    assert error["recipe"] == "keep-layer-ids"
    assert value["format"] == "sglang" and value["tensors"] == 16
    before = snapshot(release_tree("0.5.9"))
    done = check(draft, "--json", "--with", "keep-layer-ids", against=against)
    value = json.loads(done.stdout)
    assert done.returncode == 0, value["findings"]
    assert value["with"] == ["keep-layer-ids"] and value["counts"]["error"] == 0
    assert snapshot(release_tree("0.5.9")) == before


@needs_probe
@pytest.mark.parametrize("name", ["layer-called-layers-0", "speculators-as-published"])
def test_fixed_names_fit(name, check, tmp_path):
    draft = FAULTS[name].draft().write(tmp_path / "draft")
    out = tmp_path / "fixed"
    before = snapshot(draft)
    done = check(draft, "--fix-names", out)
    assert done.returncode == 1 and f"next: patchkit check-draft {out}" in done.stdout
    assert snapshot(draft) == before
    again = check(out, "--json", "--with", "keep-layer-ids")
    value = json.loads(again.stdout)
    assert again.returncode == 0, value["findings"]


@needs_probe
def test_nothing_to_fix_is_said(check, tmp_path):
    draft = drafts.sglang().write(tmp_path / "draft")
    done = check(draft, "--fix-names", tmp_path / "fixed", release="0.5.23")
    assert done.returncode == 3 and not (tmp_path / "fixed").exists()


@needs_probe
def test_a_bin_is_listed_by_torch(check, tmp_path):
    """Also its maps are checked; a pickle that would run code is refused."""
    folder = tmp_path / "draft"
    draft = FAULTS["map-lost"].draft().write(folder)
    script = (
        "import sys, torch; from safetensors.torch import load_file;"
        "torch.save(load_file(sys.argv[1]), sys.argv[2])"
    )
    files = [folder / "model.safetensors", folder / "pytorch_model.bin"]
    python = draftkit.probe_python()
    subprocess.run([python, "-c", script, *map(str, files)], check=True)
    files[0].unlink()
    done = check(draft, "--json", release="0.5.23")
    value = json.loads(done.stdout)
    codes = [o["code"] for o in value["findings"] if o["severity"] == "ERROR"]
    assert codes == ["map-missing"]
    assert value["tensors"] == 14
    marker = tmp_path / "ran"
    script = (
        "import sys, torch\nclass Bad:\n"
        "    def __reduce__(self): return (open, (sys.argv[2], 'w'))\n"
        "torch.save({'a': Bad()}, sys.argv[1])"
    )
    arguments = [str(files[1]), str(marker)]
    subprocess.run([python, "-c", script, *arguments], check=True)
    done = check(draft, release="0.5.23")
    assert done.returncode == 3 and not marker.exists()
    assert "weights-only" in done.stderr
    files[1].write_bytes(b"\x80\x02garbage")
    assert check(draft, release="0.5.23").returncode == 3


@needs_probe
def test_a_release_without_capture_names_its_recipe(check, tmp_path):
    draft = drafts.sglang().write(tmp_path / "draft")
    done = check(draft, "--json", release="0.5.3")
    value = json.loads(done.stdout)
    (error,) = [one for one in value["findings"] if one["severity"] == "ERROR"]
    assert (error["code"], error["recipe"]) == ("no-capture", "aux-capture")
    done = check(draft, "--json", "--with", "aux-capture", release="0.5.3")
    codes = {
        one["code"]
        for one in json.loads(done.stdout)["findings"]
        if one["severity"] == "ERROR"
    }
    # what is left is the graph runner's
    assert codes <= {"graphs-differ"}


@needs_probe
def test_colours_only_on_a_terminal(tmp_path, target):
    draft = drafts.sglang().write(tmp_path / "draft")
    from patchkit.draft.run import Options, check_draft
    from patchkit.draft.text import report_text
    from patchkit.registry import Registry
    from patchkit.report.style import Style
    from patchkit.workspace.tree import Workspace

    workspace = Workspace(release_tree("0.5.9") / "sglang", Registry())
    options = Options(target, python=draftkit.probe_python())
    report = check_draft(workspace, draft, options, lambda text: None)
    plain, bright = (report_text(report, Style(one)) for one in (False, True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", bright) == plain
    assert "\x1b[" in bright
    assert report.peak_mb < 1000


def test_nothing_of_torch_in_the_parent():
    import sys

    script = (
        "import sys; import patchkit.draft.run, patchkit.draft.text,"
        " patchkit.draft.output, patchkit.draft.renamed;"
        "print(*[m for m in sys.modules if m.split('.')[0] in ('torch', 'sglang')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not done.stdout.strip()
