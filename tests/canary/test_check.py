"""``canary check``: what it asks, what it refuses, what it says."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from canarykit import INFO, Closed
from support import run_patchkit

from patchkit.canary.chart import State, keys, prompt_for, questions
from patchkit.canary.check import check
from patchkit.canary.code import MODULI, continuation, digits, number_at
from patchkit.canary.expect import losses
from patchkit.canary.folder import write_pair
from patchkit.canary.plan import make_plan
from patchkit.errors import CannotRun


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    out = tmp_path_factory.mktemp("canary") / "pair"
    write_pair(make_plan(), out)
    return out


def quiet(text: str) -> None:
    pass


def test_right(pair):
    found = check(Closed(), pair, quiet)
    assert found.verdict.right and found.exit_code == 0
    assert found.measured.chart is None


def test_questions_ask_for_the_second_token():
    for key in list(keys())[:3]:
        for digit, value, wanted in questions(key):
            token = continuation(prompt_for(wanted), 2)[1]
            assert list(digits(number_at(token))) == wanted
            assert wanted[digit] == value


@pytest.mark.parametrize("told", [True, False])
def test_every_way_to_lose_digits_is_found(pair, told):
    """Also those whose steps look like another's."""
    for lost in list(losses())[1::13]:
        found = check(Closed(lost, told=told), pair, quiet)
        assert found.verdict.lost == lost and found.exit_code == 1


def test_first_candidates_only(pair):
    found = check(Closed(most=1), pair, quiet)
    assert "first candidates are right" in found.verdict.text or found.measured.chart


def test_known_values_are_listed(pair):
    found = check(Closed(known={2: {0, 1, 2}, 3: {0, 1, 5}}), pair, quiet)
    assert found.measured.chart.states()[2:4] == (State.PARTLY, State.PARTLY)
    assert "modulo 5 only 0, 1, 2; modulo 7 only 0, 1, 5" in found.verdict.text


def test_nothing_accepted(pair):
    found = check(Closed(most=0), pair, quiet)
    assert "no candidate is ever accepted" in found.verdict.text
    assert "no digit could be asked for" in " ".join(found.verdict.evidence)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"speculative_algorithm": None}, "None"),
        ({"speculative_algorithm": "NEXTN"}, "NEXTN"),
        ({"speculative_eagle_topk": 4}, "no closed form"),
        ({"speculative_num_steps": None}, "num-steps None"),
    ],
)
def test_what_has_no_closed_form_is_refused(info, said):
    with pytest.raises(CannotRun) as caught:
        check(Closed(info=info), None, quiet)
    assert said in caught.value.message and caught.value.hint


def test_without_the_pair_it_goes_on_without_layers():
    found = check(Closed({1: 1}), None, quiet)
    assert found.verdict.text == "slot 1 receives a state one layer late"


# -- over HTTP ----------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    """What a test says, whatever is asked. ``answers``: path -> (status, body)."""

    answers: dict[str, tuple[int, object]] = {}

    def do_GET(self):
        status, body = self.answers.get(self.path, (404, {}))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, *given):
        pass


@pytest.fixture
def http():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "no /server_info"),
        ({"/server_info": (200, b"<html>")}, "html"),
        ({"/get_server_info": (200, {**INFO, "speculative_eagle_topk": 8})}, "topk"),
        ({"/server_info": (401, {})}, "API key"),
        ({"/server_info": (200, INFO), "/generate": (500, b"boom")}, "boom"),
        ({"/server_info": (200, INFO), "/generate": (200, b"[1]")}, "output_ids"),
    ],
)
def test_a_server_that_is_no_canary(http, answers, said):
    _Handler.answers = answers
    done = run_patchkit("canary", "check", http, "--json")
    problem = json.loads(done.stdout)["error"]
    assert done.returncode == problem["exit_code"] == 4
    assert said in problem["message"] and problem["hint"]
    assert "Traceback" not in done.stderr


def test_no_server():
    done = run_patchkit("canary", "check", "http://127.0.0.1:9")
    assert done.returncode == 4 and "patchkit watch" in done.stderr
    done = run_patchkit("canary", "check", "no such place")
    assert done.returncode == 4 and "Traceback" not in done.stderr


# -- make ---------------------------------------------------------------------------


def test_make(tmp_path):
    out = tmp_path / "pair"
    done = run_patchkit("canary", "make", out, "--dtype", "bfloat16", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["layers"]["draft"] == [2, 4, 5] and value["plan"]["ids"] == [1, 3, 6]
    assert all(one["steps"] > 4 for one in value["logits"])
    assert {one.name for one in out.iterdir()} == {
        *("target", "draft", "draft-ids", "draft-positions", "canary.json")
    }
    config = json.loads((out / "draft-ids" / "config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 6]
    assert "eagle_config" not in json.loads((out / "draft/config.json").read_text())
    again = run_patchkit("canary", "make", out)
    assert again.returncode == 2 and "there already" in again.stderr
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "given",
    [("--ids", "1,x,3"), ("--ids", "1,2"), ("--layers", "3"), ("--dtype", "int4")],
)
def test_make_refuses(tmp_path, given):
    done = run_patchkit("canary", "make", tmp_path / "pair", *given)
    assert done.returncode == 2 and "next:" in done.stderr
    assert not list(tmp_path.iterdir())


def test_make_as_large_as_kimi_k2_leaves_holes(tmp_path):
    out = tmp_path / "pair"
    sizes = ("--layers", "61", "--hidden", "7168", "--heads", "64", "--tp", "8")
    more = ("--dtype", "bfloat16", "--ids", "2,30,58")
    done = run_patchkit("canary", "make", out, *sizes, *more)
    assert done.returncode == 0, done.stderr
    files = [one.stat() for one in out.rglob("*.safetensors")]
    assert sum(one.st_blocks * 512 for one in files) < 400 << 20
    assert sum(one.st_size for one in files) > 10 << 30
    assert len(MODULI) == 5
