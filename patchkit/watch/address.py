"""Where a server answers, as the user says it. Pure."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from patchkit.errors import UsageError

_HINT = "give where the server answers, as in --url http://127.0.0.1:30000"
_HOST = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(%\w+)?")
#: Paths that clients and probes are given, where the server's own address is meant.
_CLIENTS = ("/v1", "/health", "/health_generate", "/generate", "/v1/chat/completions")


def check_url(url: str) -> None:
    """Raise UsageError if it can't be asked."""
    why, hint = _fault(url)
    if why:
        raise UsageError(f"--url {url!r}: {why}", hint=hint or _HINT)


def port_of(url: str) -> int:
    """Of a URL that was checked."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _fault(url: str) -> tuple[str, str]:
    """What is wrong with it, and a next step of its own; "" and "" for nothing."""
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        return "a URL has no blanks", ""
    try:
        parts = urlsplit(url)
    except ValueError as problem:  # brackets that are no IPv6 address
        return f"it is no URL ({problem})", ""
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return "it does not begin with http:// and a host", _begun(url)
    try:
        port = parts.port
    except ValueError:
        return "its port is no number up to 65535", ""
    if parts.netloc.endswith(":") or port == 0:
        return "it has no port after the colon", ""
    return _rest(parts)


def _rest(parts: SplitResult) -> tuple[str, str]:
    if "@" in parts.netloc:
        return "it holds a user's name", "--api-key KEY, or PATCHKIT_API_KEY, is sent"
    if not _HOST.fullmatch(parts.hostname or ""):
        return "it has no host that could be one", ""
    if parts.query or parts.fragment:
        return "nothing may follow a ? or a #", ""
    if parts.path.rstrip("/") in _CLIENTS:
        told = f"--url {parts.scheme}://{parts.netloc}"
        return f"it is the server's own address plus {parts.path}", f"give {told}"
    return "", ""


def _begun(url: str) -> str:
    """ "localhost:8000" is meant as a URL."""
    bare = re.fullmatch(r"([\w.-]+|\[[0-9A-Fa-f:]+\])(:\d+)?/?", url)
    return f"give --url http://{url}" if bare else ""
