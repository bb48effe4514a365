"""The command: what it takes, prints and exits with."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from logkit import SAMPLES, draft, forward, round_
from support import ROOT, run_patchkit

SOUND, SKIP = SAMPLES / "sound.log", SAMPLES / "skip.log"


def logs(*arguments, **options) -> subprocess.CompletedProcess[str]:
    return run_patchkit("logs", *arguments, **options)


def answer(*arguments, code: int = 0) -> dict:
    done = logs("--json", *arguments)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_exit_codes():
    assert logs(SOUND).returncode == 0
    assert logs(SKIP).returncode == 1
    assert logs(SAMPLES / "off.log").returncode == 1


@pytest.mark.parametrize("name", ["sound", "tp2", "skip", "rank", "off", "late", "nan"])
def test_80_columns_and_no_colour_in_a_pipe(name):
    shown = logs(f"{name}.log", cwd=SAMPLES).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown


def test_a_table_row():
    shown = logs(SOUND).stdout
    assert re.search(r"\n +4 +7 3,4 x 192 +7.209 +7.214 +7.448 +3.674 +0\n", shown)
    assert "fc applied 6, skipped 12" in shown
    assert shown.endswith("nothing found\n")


def test_colour_on_a_terminal():
    import pty

    main, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    env.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "patchkit", "logs", str(SKIP)]
    child = subprocess.Popen(command, stdout=side, stderr=side, env=env, cwd=ROOT)
    os.close(side)
    shown = b""
    while True:
        try:
            block = os.read(main, 4096)
        except OSError:
            break
        if not block:
            break
        shown += block
    os.close(main)
    assert child.wait() == 1
    assert b"\x1b[31;1merror:\x1b[0m" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).splitlines()
    assert max(map(len, plain)) <= 80


def test_json():
    value = answer(SKIP, code=1)
    assert (value["records"], value["bad"], value["ranks"]) == (80, 0, [0])
    assert value["steps"] == {"deepseek_v2": [1, 7], "llama_eagle3": [1, 18]}
    (finding,) = value["findings"]
    assert (finding["name"], finding["severity"]) == ("fc-skipped", "error")
    assert finding["evidence"][0] == {"file": str(SKIP), "line": 39}
    row = value["table"][0]
    assert (row["site"], row["layer"], row["count"]) == ("deepseek_v2.aux", 2, 7)
    assert row["row_norm"]["p50"] == pytest.approx(4.98, rel=0.05)


def test_stdin_and_gzip_and_two_files(tmp_path):
    packed = tmp_path / "skip.log.gz"
    packed.write_bytes(gzip.compress(SKIP.read_bytes()))
    plain = answer(SKIP, code=1)
    zipped = answer(packed, code=1)
    assert zipped["table"] == plain["table"]
    with open(SKIP, "rb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "patchkit", "logs", "-", "--json"],
            stdin=file, capture_output=True, cwd=ROOT,
        )  # fmt: skip
    value = json.loads(done.stdout)
    assert value["table"] == plain["table"]
    assert value["findings"][0]["evidence"][0] == {"file": "stdin", "line": 39}
    both = answer(SKIP, packed, code=1)
    assert both["records"] == 2 * plain["records"]


def test_a_damaged_gzip_is_read_as_far_as_it_goes(tmp_path):
    packed = tmp_path / "sound.log.gz"
    # not compressed well, so that the start of the data can be read
    data = SOUND.read_bytes() * 40
    packed.write_bytes(gzip.compress(data, 0)[:-5000])
    value = answer(packed)
    assert value["records"] > 1000
    assert "damaged" in value["findings"][-1]["title"]


def test_a_folder_of_json_lines_joins_ranks():
    value = answer(SAMPLES / "folder")
    assert value["ranks"] == [0, 1]
    assert value["findings"] == []
    # every record of a rank has its mate, though each rank has a file of its own
    assert value["compared"]["between_ranks"] == value["records"] // 2


def test_ranks_meet_also_in_long_files(tmp_path):
    """Far more steps than are remembered, in files that are read block by block."""
    for rank in (0, 1):
        with open(tmp_path / f"taps-rank{rank}-pid{rank}.jsonl", "w") as file:
            for step in range(1, 8001):
                norm = 3.0 if (rank, step) != (1, 7900) else 4.0
                record = {
                    "site": "deepseek_v2.aux", "rank": rank, "step": step, "layer": 2,
                    "shape": [4, 64], "norm": norm, "nonfinite": 0,
                    "time": 1000.0 + step * 0.01 + rank * 0.001,
                    "padding": "x" * 100,
                }  # fmt: skip
                file.write(json.dumps(record) + "\n")
    value = answer(tmp_path, code=1)
    assert value["compared"]["between_ranks"] == 8000
    (finding,) = [f for f in value["findings"] if f["severity"] == "error"]
    assert (finding["name"], finding["step"]) == ("ranks-disagree", 7900)


def test_saved_tensors_are_listed():
    value = answer(SAMPLES / "saves")
    assert len(value["saved"]) == 6
    assert value["saved"][0]["file"].endswith(".safetensors")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere.log"], 3, "there is no nowhere.log"),
        (["."], 3, "neither JSON lines"),
        ([], 2, "PATH"),
        (["--compare", "sound.log"], 2, "takes two runs"),
        (["--compare", "a", "b", "--follow"], 2, "goes with neither"),
        (["sound.log", "sound.log"], 2, "twice"),
        (["sound.log", "folder"], 2, "everything twice"),
        (["sound.log", "--draft", "nowhere"], 3, "can't be read"),
        (["sound.log", "--release", "0.5.9"], 2, "is for --draft"),
        (["sound.log", "--plot", "x.pdf"], 2, ".png or .html"),
        (["sound.log", "--plot", "nowhere/x.png"], 2, "no folder nowhere"),
        (["sound.log", "--tolerance", "0"], 2, "tolerance"),
        (["sound.log", "--tolerance", "nan"], 2, "tolerance"),
    ],
)
def test_bad_requests(arguments, code, says):
    done = logs(*arguments, cwd=SAMPLES)
    assert done.returncode == code
    assert says in done.stderr
    assert "next:" in done.stderr
    assert not done.stdout


def test_a_file_that_cannot_be_read(tmp_path):
    file = tmp_path / "x.log"
    file.write_text("x")
    file.chmod(0)
    if os.access(file, os.R_OK):
        pytest.skip("root reads everything")
    assert logs(file).returncode == 3


def test_a_draft_on_the_command_line(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 192, "eagle_config":'
        ' {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}}'
    )
    value = answer(SOUND, "--draft", tmp_path, "--release", "0.5.9", code=1)
    assert value["findings"][0]["name"] == "layer-ids"
    assert value["findings"][0]["site"] == "deepseek_v2.aux"


def test_binary_garbage(tmp_path):
    file = tmp_path / "x.log"
    file.write_bytes(os.urandom(300_000) + b"\n" + round_(1).encode())
    value = answer(file)
    assert value["records"] == 10
    assert value["findings"] == []


# -- --compare ------------------------------------------------------------------


def run_of(folder, name: str, text: str):
    file = folder / name
    file.write_text(text)
    return file


def test_the_same_run_nowhere_parts(tmp_path):
    text = "".join(map(round_, range(1, 9)))
    a, b = (run_of(tmp_path, name, text) for name in "ab")
    value = answer("--compare", a, b)
    assert (value["joined"], value["first"], value["not_joined"]) == (80, None, [])


def test_the_first_site_where_two_runs_part(tmp_path):
    same = "".join(map(round_, range(1, 4)))
    a = run_of(tmp_path, "a", same + "".join(map(round_, range(4, 9))))
    later = "".join(round_(step, norms=(3.0, 6.0, 7.0)) for step in range(4, 7))
    b = run_of(tmp_path, "b", same + later)
    value = answer("--compare", a, b, code=1)
    first = value["first"]
    assert (first["site"], first["layer"], first["step"]) == ("deepseek_v2.aux", 30, 4)
    assert "norm 5, 6" in first["text"]
    text = a.read_text().splitlines()[first["a"]["line"] - 1]
    assert "step=4 layer=30" in text
    only_in_a = sum(one["a"] for one in value["not_joined"])
    assert only_in_a == 20 and not any(one["b"] for one in value["not_joined"])
    shown = logs("--compare", "a", "b", cwd=tmp_path).stdout
    assert "they part first at deepseek_v2.aux, layer 30, step 4, rank 0" in shown
    assert "could not be joined" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_tolerance_of_a_comparison(tmp_path):
    a = run_of(tmp_path, "a", round_(1))
    b = run_of(tmp_path, "b", round_(1, norms=(3.02, 5.0, 7.0)))
    assert logs("--compare", a, b).returncode == 0
    assert logs("--compare", a, b, "--tolerance", "0.001").returncode == 1


def test_fc_skipped_in_one_of_two_runs(tmp_path):
    a = run_of(tmp_path, "a", forward(step=1) + draft(step=1))
    b = run_of(
        tmp_path, "b", forward(step=1) + draft(step=1, norms=(7.0,), fc="skipped")
    )
    first = answer("--compare", a, b, code=1)["first"]
    assert (first["site"], first["text"]) == ("llama_eagle3.fc_in", "192 columns, 64")


def test_other_rows_cannot_be_joined(tmp_path):
    a = run_of(tmp_path, "a", forward(step=1))
    b = run_of(tmp_path, "b", forward(step=1, rows="4/8"))
    value = answer("--compare", a, b, code=1)
    assert (value["joined"], value["first"]) == (0, None)
    assert value["not_joined"] == [{"what": "other rows or no numbers", "a": 4, "b": 4}]
    assert "nothing could be joined" in logs("--compare", a, b).stdout


def test_saved_tensors_are_compared_element_by_element(tmp_path):
    shutil.copytree(SAMPLES / "saves", tmp_path / "b")
    b = tmp_path / "b"
    value = answer("--compare", SAMPLES / "saves", b)
    assert [one["same"] for one in value["saved"]] == [True] * 6
    (file,) = b.glob("llama_eagle3.fc_in*")
    data = bytearray(file.read_bytes())
    data[-1] ^= 0x7F  # the last element's exponent
    file.write_bytes(data)
    value = answer("--compare", SAMPLES / "saves", b, code=1)
    (wrong,) = [one for one in value["saved"] if not one["same"]]
    assert (wrong["site"], wrong["worst"], wrong["all_rows"]) == (
        "llama_eagle3.fc_in", 7, 8,
    )  # fmt: skip
    # the records agree all the same: they were said before
    assert value["first"] is None


@pytest.mark.parametrize("data", [b"", b"x" * 20, b"\x08\0\0\0\0\0\0\0" + b"[1,2,3] "])
def test_a_damaged_save_is_said(tmp_path, data):
    shutil.copytree(SAMPLES / "saves", tmp_path / "b")
    (file,) = (tmp_path / "b").glob("llama_eagle3.fc_in*")
    file.write_bytes(data)
    value = answer("--compare", SAMPLES / "saves", tmp_path / "b")
    assert any(file.name in note for note in value["notes"])


def test_a_run_that_says_nothing_cannot_be_compared():
    done = logs("--compare", SAMPLES / "off.log", SOUND)
    assert done.returncode == 3
    assert "no tap spoke" in done.stderr
