"""Asks the server by HTTP, in a thread of its own, so that a hang holds up nobody."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from patchkit.watch.judge import Answer

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
        for path in CHEAP:
            answer, _ = self._request(path, deadline)
            if answer.status != 404:
                break
        return Answer(CHEAP[0], answer.at, answer.seconds, answer.status,
                      answer.refused, answer.late, answer.error)  # fmt: skip

    def _generate(self, deadline: float) -> Answer:
        """One token. A model that generates none is asked for an embedding."""
        told: dict[str, object] = {}
        for path in CHEAP:
            cheap, body = self._request(path, SOON)
            if cheap.status == 200:
                told = json.loads(body)
                break
        sampling = {"max_new_tokens": 1, "temperature": 0}
        asked: dict[str, object] = {"input_ids": [0], "sampling_params": sampling}
        path = "/generate"
        if told.get("is_generation") is False:
            path, asked = "/encode", {"input_ids": [0]}
        answer, _ = self._request(path, deadline, json.dumps(asked).encode())
        return Answer("/generate", answer.at, answer.seconds, answer.status,
                      answer.refused, answer.late, answer.error)  # fmt: skip

    def _request(
        self, path: str, deadline: float, body: bytes | None = None
    ) -> tuple[Answer, bytes]:
        headers = {"Content-Type": "application/json"} if body else {}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.url + path, body, headers)
        began = time.monotonic()
        status, refused, late, error, got = 0, False, False, "", b""
        # the server is asked itself, whatever proxy the environment names
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=deadline) as response:
                status, got = response.status, response.read(1 << 20)
        except urllib.error.HTTPError as problem:
            status = problem.code
            error = problem.read(300).decode("utf-8", "replace")
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "reason", problem)
            refused = isinstance(reason, ConnectionRefusedError)
            late = isinstance(reason, TimeoutError)
            error = str(reason)
        except Exception as problem:  # http.client's: the server broke off
            error = f"{type(problem).__name__}: {problem}"
        spent = time.monotonic() - began
        return Answer(path, self._clock(), spent, status, refused, late, error), got
