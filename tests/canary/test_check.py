"""``canary check``: what it asks, what it refuses, what it says."""

from __future__ import annotations

import json
import os
import shlex
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from canarykit import INFO, Closed
from support import run_patchkit

from patchkit.canary.chart import State, keys, prompt_for, questions
from patchkit.canary.check import check
from patchkit.canary.code import MODULI, continuation, digits, number_at
from patchkit.canary.expect import losses
from patchkit.canary.folder import read_pair, write_pair
from patchkit.canary.plan import make_plan
from patchkit.canary.text import checked_text
from patchkit.errors import CannotRun, Refused
from patchkit.report.style import Style


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
        ({"/server_info": (500, {})}, "answers /server_info with HTTP 500"),
        ({"/server_info": (200, [1, 2])}, "answers '[1, 2]'"),
        ({"/server_info": (200, b"null")}, "answers 'null'"),
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


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:9/", "file:///etc/hosts", "", " "])
def test_what_is_no_address_of_a_server_is_refused_at_once(url):
    done = run_patchkit("canary", "check", url)
    assert done.returncode == 2 and "HTTP server" in done.stderr, done.stderr


def test_a_server_that_is_slow_is_not_gone():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()  # accepts, and says nothing
        url = f"http://127.0.0.1:{one.getsockname()[1]}"
        done = run_patchkit("canary", "check", url, "--timeout", "1")
    assert done.returncode == 4 and "gives no answer in 1 s" in done.stderr
    assert "--timeout" in done.stderr


# -- the pair -----------------------------------------------------------------------


def test_a_pair_that_is_not_the_servers_is_told(pair):
    info = {"model_path": "/models/other/target"}
    found = check(Closed(info=info), pair, quiet)
    assert found.verdict.right and "/models/other/target" in found.notes[0]
    assert "note      the server's model is" in checked_text(found, Style(False))
    at_home = {"model_path": str(pair / "target")}
    assert not check(Closed(info=at_home), pair, quiet).notes
    elsewhere = {"model_path": f"/in/a/container/{pair.name}/target"}
    assert not check(Closed(info=elsewhere), pair, quiet).notes


def test_another_model_is_no_canary_though_a_pair_is_given(pair):
    class Other(Closed):
        def _answer(self, prompt, tokens, streamed):
            one = super()._answer(prompt, tokens, streamed)
            return replace(one, tokens=tuple(token + 900 for token in one.tokens))

    with pytest.raises(CannotRun) as caught:
        check(Other(info={"model_path": "/models/llama"}), pair, quiet)
    assert "no canary" in caught.value.message and "/models/llama" in caught.value.hint


def test_a_draft_under_another_name_is_told(pair):
    info = {"speculative_draft_model_path": "/models/pair/renamed"}
    found = check(Closed(info=info), pair, quiet)
    assert any("'renamed'" in one for one in found.notes)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (b"{", "can't be read"),
        (b"[]", "of no pair what it was made for"),
        (b'{"canary": 1}', "of no pair what it was made for"),
        (b'{"canary": 99, "plan": {}}', "edition 99"),
        (b'{"canary": 1, "plan": {"layers": 2}}', "no pair is made so"),
    ],
)
def test_a_manifest_that_is_none(tmp_path, manifest, said):
    (tmp_path / "canary.json").write_bytes(manifest)
    with pytest.raises(Refused) as caught:
        read_pair(tmp_path)
    assert said in caught.value.message and "make OUT" in caught.value.hint


def test_the_draft_in_place_of_the_pair(pair):
    with pytest.raises(Refused) as caught:
        read_pair(pair / "draft")
    assert str(pair) in caught.value.hint


def test_only_together_some_are_accepted(pair):
    class Mixed(Closed):
        def generate(self, prompts, tokens):
            right = Closed() if len(prompts) == 4 else self
            return [right._answer(one, tokens, False) for one in prompts]

    found = check(Mixed(most=0), pair, quiet)
    assert "no candidate is accepted one by one" in found.verdict.text
    assert any("at once, some" in one for one in found.verdict.evidence)


@pytest.mark.parametrize("lost", [{}, {1: 1}, {0: 1, 1: 1, 2: 1}, {3: 0, 4: 0}])
def test_an_answer_fits_80_columns(pair, lost):
    text = checked_text(check(Closed(lost), pair, quiet), Style(False))
    assert max(map(len, text.splitlines())) < 80
    assert "histogram [0, 0, 0, all]" in text


def test_where_nothing_is_accepted_the_steps_say_nothing(pair):
    found = check(Closed(most=0), pair, quiet)
    said = " ".join(found.verdict.evidence)
    assert "steps" not in said
    assert not any("candidates:" in one.tell for one in found.verdict.faults)


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


def test_what_make_prints_can_be_pasted(tmp_path):
    out = tmp_path / "a folder, ü"
    done = run_patchkit("canary", "make", out)
    assert done.returncode == 0, done.stderr
    command = done.stdout.partition("start the server\n")[2].replace("\\\n", " ")
    server, _, then = command.partition("\nthen\n")
    words = shlex.split(server)
    assert words[words.index("--model-path") + 1] == str(out / "target")
    assert words[words.index("--speculative-draft-model-path") + 1] == f"{out}/draft"
    assert shlex.split(then)[-1] == str(out)
    fits = [one for one in done.stdout.splitlines() if str(out) not in one]
    assert max(map(len, fits)) < 80


def test_make_into_what_can_not_be(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    done = run_patchkit("canary", "make", link)
    assert done.returncode == 2 and "is a link to" in done.stderr
    assert link.is_symlink() and len(list(tmp_path.iterdir())) == 1
    if os.path.isdir("/proc/self"):
        done = run_patchkit("canary", "make", "/proc/pair")
        assert done.returncode == 3 and "/proc can't be written to" in done.stderr
        assert "room" not in done.stderr


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
