"""SGLang's HTTP server: what it was started with, and what it generates.

``spec_accept_histogram`` (``spec_correct_drafts_histogram`` in newer releases) counts
what verify steps accepted; up to 0.5.8 there is none. A stream has a chunk for each
step, so that what each accepted can be had from every release; where chunks were
merged on the way, their number is not that of the steps, and they are not used.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from patchkit.canary.measured import Answer
from patchkit.errors import CannotRun, UsageError

Json = dict[str, Any]
_INFO = ("/server_info", "/get_server_info")
_HISTOGRAMS = ("spec_accept_histogram", "spec_correct_drafts_histogram")


class Server:
    """``timeout``: seconds for each request. Raises UsageError for an address that is
    not HTTP's; methods raise CannotRun where the server does not answer, or not as
    SGLang does."""

    def __init__(self, url: str, key: str | None = None, timeout: float = 120) -> None:
        self.url = url.strip().rstrip("/")
        scheme, colon, _ = self.url.partition("://")
        if not self.url or (colon and scheme.lower() not in ("http", "https")):
            raise UsageError(
                f"{url!r} is no address of an HTTP server",
                hint="give one like http://127.0.0.1:30000",
            )
        if not colon:
            self.url = f"http://{self.url}"
        self._key = key
        self._timeout = timeout
        # the server itself is asked, whatever proxy the environment names
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def info(self) -> Json:
        """Its arguments, ``version`` among them."""
        for path in _INFO:
            status, body = self._get(path)
            if status == 404:
                continue
            if status != 200:
                raise CannotRun(
                    f"{self.url} answers {path} with HTTP {status}",
                    hint="its log says why",
                )
            found = self._parsed(path, body)
            if isinstance(found, dict):
                return found
            raise self._foreign(path, json.dumps(found)[:200])
        raise CannotRun(
            f"{self.url} has no {' or '.join(_INFO)} (HTTP 404)",
            hint="is it an SGLang server, 0.5.4 or newer?",
        )

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[Answer]:
        """All prompts in one request."""
        with self._open(_asked(list(map(list, prompts)), tokens)) as response:
            found = self._parsed("/generate", response.read())
        if not isinstance(found, list) or len(found) != len(prompts):
            raise self._foreign("/generate", str(found)[:200])
        return [self._answer(prompt, one, []) for prompt, one in zip(prompts, found)]

    def stream(self, prompt: Sequence[int], tokens: int) -> Answer:
        """One prompt, chunk by chunk."""
        counts: list[int] = []
        last: Json = {}
        made: list[int] = []
        with self._open(_asked(list(prompt), tokens) | {"stream": True}) as response:
            for line in response:
                if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                    continue
                last = self._parsed("/generate", line[5:])
                if "error" in last:
                    raise self._foreign("/generate", str(last["error"]))
                counts.append(
                    int(last.get("meta_info", {}).get("completion_tokens", 0))
                )
                new = last.get("output_ids") or []
                # chunks hold all tokens so far or, in some releases, the new ones
                made = new if len(new) == counts[-1] else [*made, *new]
        accepted = [b - a - 1 for a, b in pairwise(counts) if b > a]
        return self._answer(prompt, last | {"output_ids": made}, accepted)

    def _answer(self, prompt: Sequence[int], one: Json, accepted: list[int]) -> Answer:
        meta = one.get("meta_info") or {}
        tokens = one.get("output_ids")
        if tokens is None or "spec_verify_ct" not in meta:
            raise CannotRun(
                f"{self.url}: answers without output_ids or spec_verify_ct",
                hint="start it with --speculative-algorithm EAGLE3, SGLang 0.5.4.post2"
                " or newer",
            )
        counts: list[int] = next(
            (meta[name] for name in _HISTOGRAMS if meta.get(name)), []
        )
        verifies = int(meta["spec_verify_ct"])
        return Answer(
            tuple(prompt),
            tuple(tokens),
            verifies,
            tuple(counts),
            tuple(accepted) if len(accepted) == verifies else (),
        )

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            with self._open(None, path) as response:
                return 200, response.read()
        except _Status as problem:
            return problem.status, b""

    @contextmanager
    def _open(self, body: Json | None, path: str = "/generate") -> Iterator[Any]:
        """The response; what goes wrong while it is read is CannotRun, too."""
        headers = {"Content-Type": "application/json"} if body else {}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = json.dumps(body).encode() if body else None
        try:
            request = urllib.request.Request(self.url + path, data, headers)
            with self._opener.open(request, timeout=self._timeout) as response:
                yield response
        except urllib.error.HTTPError as problem:
            said = problem.read(300).decode("utf-8", "replace")
            if problem.code in (401, 403):
                raise CannotRun(
                    f"{self.url} wants an API key", hint="give --api-key"
                ) from None
            if body is None:
                raise _Status(problem.code) from None
            raise self._foreign(path, f"HTTP {problem.code}: {said}") from None
        except (OSError, ValueError, http.client.HTTPException) as problem:
            reason = getattr(problem, "reason", problem)
            if isinstance(reason, TimeoutError):
                raise CannotRun(
                    f"{self.url}{path} gives no answer in {self._timeout:g} s",
                    hint="--timeout gives it longer; patchkit watch --url"
                    f" {self.url} says whether it is ready, or hangs",
                ) from None
            raise CannotRun(
                f"{self.url} does not answer: {reason or type(problem).__name__}",
                hint=f"patchkit watch --url {self.url} says whether it is ready",
            ) from None

    def _parsed(self, path: str, body: bytes) -> Any:
        try:
            return json.loads(body)
        except ValueError:
            raise self._foreign(path, body[:200].decode("utf-8", "replace")) from None

    def _foreign(self, path: str, said: str) -> CannotRun:
        return CannotRun(
            f"{self.url}{path} answers {' '.join(said.split())!r}",
            hint="is it SGLang with the canary's target? Its log may say more",
        )


class _Status(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


def _asked(prompts: list[Any], tokens: int) -> Json:
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    return {"input_ids": prompts, "sampling_params": sampling}
