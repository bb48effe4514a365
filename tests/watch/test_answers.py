"""What answers at a URL: SGLang, ready or not, or something else."""

from __future__ import annotations

import contextlib
import json
import socketserver
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from commandkit import COMMAND, free_port, run, started, verdict  # noqa: F401
from watchkit import Play

from patchkit.watch.answers import TRIES
from patchkit.watch.settings import Until
from patchkit.watch.verdict import Outcome

pytest.importorskip("psutil")

FINE = {"/health": (200, "text/plain", ""), "/model_info": (200, "x/json", "{}"),
        "/generate": (200, "x/json", "{}")}  # fmt: skip
BROKEN = '{"error": {"message": "b\x1b[31mad\\n"}}'
PAGE = (200, "text/html", "<html>hello</html>")


@contextlib.contextmanager
def answering(said):
    """A server that says ``said``: path -> (status, type, body), None for any other."""

    class Http(BaseHTTPRequestHandler):
        def do_GET(self):
            status, kind, body = said.get(self.path) or said[None]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "http://login/x")
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", free_port()), Http)
    with serving(server) as url:
        yield url


@contextlib.contextmanager
def serving(server):
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("said", "says", "step"),
    [
        ({None: PAGE}, "SGLang answers at {url}: its /health is a web page", "--url"),
        (
            {None: (200, "text/plain", "<html>")},
            "no SGLang answers at {url}: its /model_info is no JSON object",
            "--url",
        ),
        ({None: (404, "text/plain", "")}, "at {url}: it has no /health", "--url"),
        (
            {None: (302, "text/plain", "")},
            "at {url}: its /health redirects to http://login/x",
            "--url",
        ),
        ({None: (401, "x", "")}, "/health says 401: it asks for a key", "--api-key"),
        (
            FINE | {"/generate": (500, "x", BROKEN)},
            "ready, but it answers a request of one token with 500: bad\n",
            "--log",
        ),
    ],
)  # fmt: skip
def test_what_answers_is_told(said, says, step):
    with answering(said) as url:
        done = run("--url", url, "--timeout", "50s")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("UNHEALTHY ")
    assert says.format(url=url) in done.stdout
    assert step in done.stdout.split("next: ")[1]
    assert "Traceback" not in done.stderr and "\x1b" not in done.stdout


def test_what_speaks_no_http():
    class Ssh(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1000)
            self.request.sendall(b"SSH-2.0-OpenSSH\r\n")

    with serving(socketserver.TCPServer(("127.0.0.1", 0), Ssh)) as url:
        done = run("--url", url)
    assert done.returncode == 1
    assert f"no SGLang answers at {url}: it does not speak HTTP" in done.stdout


def test_a_page_at_the_url_of_a_ready_log(started):  # noqa: F811
    _, log = started()
    with answering({None: PAGE}) as url:
        done = run("--log", log, "--url", url)
    assert done.returncode == 1, done.stdout
    assert f"no SGLang answers at {url}: its /model_info is a web page" in done.stdout


@pytest.mark.parametrize("said", [{None: (503, "text/plain", "")}, None])
def test_what_is_not_ready_yet_is_told_when_time_is_up(said):
    with answering(said) if said else contextlib.nullcontext() as url:
        url = url or f"http://127.0.0.1:{free_port()}"
        done = run("--url", url, "--timeout", "1s")
    assert done.returncode == 5
    told = "/health says 503" if said else f"nobody answers at {url} after"
    assert told in done.stdout and "wait longer" in done.stdout


def test_until_end_says_that_it_is_ready_and_how_it_ended():
    with answering(FINE) as url:
        watching = subprocess.Popen(
            [*COMMAND, "--json", "--url", url, "--until", "end", "--timeout", "1s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for line in watching.stdout:
            if json.loads(line)["event"] == "confirmed":
                assert "the server is ready" in json.loads(line)["says"]
                break
        else:
            raise AssertionError("it never got ready")
        watching.terminate()
        found = json.loads(watching.stdout.read().splitlines()[-1])
    assert watching.wait(30) == 0
    assert (found["verdict"], found["phase"]) == ("STOPPED", "ready")


def test_a_server_that_goes_after_it_was_ready():
    play = Play(has_log=False, request=True, url="http://x", until=Until.END)
    play.answer("/health", status=200).answer("/generate", status=200).wait(1)
    assert play.verdict is None and play.judge.is_confirmed
    play.wait(3, root=False)
    assert play.verdict.outcome is Outcome.CRASHED
    assert play.verdict.says == "the server ended after it was ready"
    assert not play.verdict.details, "there are no last lines"
    assert "--log" in play.verdict.next


def test_nobody_answers_any_more():
    play = Play(ranks=(), has_log=False, request=True, url="http://x", until=Until.END)
    play.answer("/health", status=200).answer("/generate", status=200).wait(1)
    for _ in range(TRIES):
        assert play.wait(1).verdict is None
        play.answer("/generate", refused=True, error="Connection refused")
    play.wait(1)
    assert play.verdict.outcome is Outcome.UNHEALTHY
    assert "no request gets through any more: Connection refused" in play.verdict.says


def test_one_that_is_ready_and_too_busy_is_loading_when_time_is_up():
    play = Play(request=True, timeout=30.0).ready()
    play.judge.request_sent()
    play.say("Decode batch. #running-req: 60", "TP0")
    play.answer("/generate", late=True, seconds=20).wait(40, busy=True)
    assert play.verdict.outcome is Outcome.LOADING
    assert "its engine is at work for others" in play.verdict.says


def test_something_else_at_the_port_of_the_log_is_no_proof():
    play = Play(request=True).ready()
    play.answer("/generate", status=200, foreign="its /model_info is a web page")
    play.wait(1)
    assert play.verdict.outcome is Outcome.READY
    assert (
        "no request was tried: what answers there is no SGLang"
        in (play.verdict.notes[0])
    )


def test_a_refused_key_is_told_from_none():
    for key, says in ((True, "the key that was given is refused"), (False, "asks for")):
        play = Play(has_log=False, url="http://x", key=key)
        play.answer("/health", status=403).wait(1)
        assert play.verdict.outcome is Outcome.UNHEALTHY and says in play.verdict.says


def test_a_server_that_is_started_again_is_asked_again():
    play = Play(request=True, until=Until.END).ready()
    play.answer("/generate", status=200).wait(1)
    assert play.judge.is_confirmed
    play.ready().wait(1)
    assert play.judge.is_up and not play.judge.is_confirmed
