"""Asks the server by HTTP, in a thread of its own, so that a hang holds up nobody."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace

from patchkit.watch.answers import Answer
from patchkit.watch.lines import printable

#: A question that costs the server nothing; older releases know the second name only.
CHEAP = ("/model_info", "/get_model_info")
#: Seconds that it may take.
SOON = 5.0


class Probe:
    """``ask`` returns at once; ``answers`` gives what came. One question at a time."""

    def __init__(self, url: str, key: str | None, clock: Callable[[], float]) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._clock = clock
        self._came: queue.Queue[Answer] = queue.Queue()
        self._asking: set[str] = set()

    def ask(self, path: str, deadline: float) -> None:
        """Ask unless this very question is still open."""
        if path in self._asking:
            return
        self._asking.add(path)
        threading.Thread(target=self._work, args=(path, deadline), daemon=True).start()

    def answers(self) -> list[Answer]:
        found = []
        while not self._came.empty():
            found.append(self._came.get())
        return found

    def is_asking(self, path: str) -> bool:
        return path in self._asking

    def _work(self, path: str, deadline: float) -> None:
        if path == "/generate":
            answer = self._generate(deadline)
        elif path in CHEAP:
            answer = self._cheap(deadline)
        else:
            answer = self._request(path, deadline)[0]
        self._came.put(answer)
        self._asking.discard(path)

    def _cheap(self, deadline: float) -> Answer:
        return replace(self._model_info(deadline)[0], path=CHEAP[0])

    def _model_info(self, deadline: float) -> tuple[Answer, dict[str, object]]:
        """What it says of its model; whatever else answers can't."""
        for path in CHEAP:
            answer, body = self._request(path, deadline)
            if answer.status != 404:
                break
        else:
            return replace(answer, foreign=f"it has no {CHEAP[0]}"), {}
        if answer.status != 200 or answer.foreign:
            return answer, {}
        told = None
        with contextlib.suppress(ValueError):
            told = json.loads(body)
        if isinstance(told, dict):
            return answer, told
        return replace(answer, foreign=f"its {path} is no JSON object"), {}

    def _generate(self, deadline: float) -> Answer:
        """One token. A model that generates none is asked for an embedding."""
        cheap, told = self._model_info(SOON)
        if cheap.foreign:
            return replace(cheap, path="/generate")
        sampling = {"max_new_tokens": 1, "temperature": 0}
        asked: dict[str, object] = {"input_ids": [0], "sampling_params": sampling}
        path = "/generate"
        if told.get("is_generation") is False:
            path, asked = "/encode", {"input_ids": [0]}
        answer, _ = self._request(path, deadline, json.dumps(asked).encode())
        # that it is one was seen
        return replace(answer, path="/generate", foreign="")

    def _request(
        self, path: str, deadline: float, body: bytes | None = None
    ) -> tuple[Answer, bytes]:
        headers = {"Content-Type": "application/json"} if body else {}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        began = time.monotonic()
        status, refused, late, error, foreign, got = 0, False, False, "", "", b""
        # the server is asked itself, whatever proxy the environment names
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), _NoRedirect
        )
        try:
            request = urllib.request.Request(self.url + path, body, headers)
            with opener.open(request, timeout=deadline) as response:
                status, got = response.status, response.read(1 << 20)
                if response.headers.get_content_type() == "text/html":
                    foreign = f"its {path} is a web page"
        except urllib.error.HTTPError as problem:
            status = problem.code
            error, foreign = _read_error(path, problem)
        except http.client.RemoteDisconnected:
            error = "the connection was closed without an answer"
        except http.client.BadStatusLine:
            error = foreign = "it does not speak HTTP"
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "reason", problem)
            refused = isinstance(reason, ConnectionRefusedError)
            late = isinstance(reason, TimeoutError)
            error = one_line(getattr(reason, "strerror", None) or str(reason))
            if isinstance(reason, ssl.SSLError):
                error = foreign = f"TLS with it fails ({reason.reason})"
        except Exception as problem:  # http.client's: the server broke off
            error = one_line(f"{type(problem).__name__}: {problem}")
        spent = time.monotonic() - began
        answer = Answer(
            path, self._clock(), spent, status, refused, late, error, foreign
        )
        return answer, got


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """SGLang sends nobody elsewhere: that there is a redirect is the answer."""

    def redirect_request(self, *arguments: object) -> None:
        return None


def _read_error(path: str, problem: urllib.error.HTTPError) -> tuple[str, str]:
    """What an answer that is none says; and why it is none of SGLang's, if so."""
    if 300 <= problem.code < 400:
        place = one_line(str(problem.headers.get("Location", "elsewhere")))
        told = f"its {path} redirects to {place}"
        return told, told
    body = b""
    with contextlib.suppress(Exception):  # http.client's: it broke off
        body = problem.read(1000)
    text = one_line(_message(body.decode("utf-8", "replace")))
    if not text or problem.headers.get_content_type() == "text/html":
        text = one_line(str(problem.reason))
    foreign = f"it has no {path}" if problem.code == 404 else ""
    return text, foreign


def _message(body: str) -> str:
    """Of ``{"error": {"message": ...}}`` and its like the message."""
    told: object = None
    with contextlib.suppress(ValueError):
        told = json.loads(body, strict=False)
    while isinstance(told, dict):
        names = ("error", "message", "detail")
        told = next((told[one] for one in names if one in told), None)
    return told if isinstance(told, str) else body


def one_line(text: str) -> str:
    """What others said, fit to be shown."""
    line = " ".join(printable(text).split())
    return line if len(line) <= 200 else f"{line[:197]}..."
