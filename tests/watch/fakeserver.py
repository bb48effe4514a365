"""Behaves like a server, in a second: two ranks under SGLang's names for them, its log
lines, HTTP. ``fakeserver.py PORT WHAT``; ``fakeserver.py rank LABEL WHAT`` is a rank.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RANKS = ("TP0", "TP1")
#: They never get ready; one of them heeds no signal.
SLOW = ("slow", "stubborn")


def say(text: str, rank: str = "") -> None:
    told = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"[{told}{' ' + rank if rank else ''}] {text}\n"
    os.write(2, line.encode())


def rank(label: str, what: str) -> None:
    say("Init torch distributed begin.", label)
    say("Init torch distributed ends. elapsed=0.1 s", label)
    say("Load weight begin. avail mem=9 GB", label)
    if what == "deadlock" and label == "TP1":
        wait_for_a_lock()
    if what in ("deadlock", "wait"):
        wait_for_others()
    if what == "crash" and label == "TP1":
        try:
            raise KeyError("model.layers.0.mlp.gate_proj.weight")
        except KeyError:
            import traceback

            say(f"Scheduler hit an exception: {traceback.format_exc()}", label)
            sys.exit(1)
    if what in SLOW:
        while True:
            say("still at it", label)
            time.sleep(0.5)
    say("Load weight end. elapsed=0.1 s, type=X", label)
    say("Memory pool end. avail mem=9 GB", label)
    if label == "TP0":
        say("max_total_num_tokens=9, x=1", label)
    signal.pause()


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def wait_for_others() -> None:
    all_reduce()


def all_reduce() -> None:
    threading.Event().wait()


class Http(BaseHTTPRequestHandler):
    what = ""
    asked = 0

    def do_GET(self) -> None:
        self.reply({"is_generation": True})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        Http.asked += 1
        if self.what == "deaf" or (self.what == "deaf later" and Http.asked > 2):
            time.sleep(60)
        self.reply({"text": "x"})

    def reply(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def serve(port: int, what: str) -> None:
    shown = "model_path='/m', tp_size=2, host='127.0.0.1'"
    say(f"server_args=ServerArgs({shown}, port={port})")
    here = [os.path.abspath(__file__), "rank"]
    children = [
        subprocess.Popen(
            [f"sglang::scheduler_{label}", *here, label, what],
            executable=sys.executable,
        )
        for label in RANKS
    ]
    signal.signal(signal.SIGTERM, lambda *_: stop(children))
    if what == "stubborn":
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    while what in SLOW or not all(loaded(one) for one in children):
        if any(one.poll() for one in children):
            say("Received sigquit from a child process. It usually means")
            time.sleep(1)
            stop(children, 1)
        time.sleep(0.05)
    Http.what = what
    server = ThreadingHTTPServer(("127.0.0.1", port), Http)
    say(f"INFO:     Uvicorn running on http://127.0.0.1:{port} (Press CTRL+C to quit)")
    say("The server is fired up and ready to roll!")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while True:
        time.sleep(0.1)


def loaded(process: subprocess.Popen[bytes]) -> bool:
    """A rank that only waits for signals has loaded."""
    try:
        with open(f"/proc/{process.pid}/wchan") as file:
            waits = file.read()
        with open(f"/proc/{process.pid}/syscall") as file:
            return file.read().startswith("34 ") or "pause" in waits
    except OSError:
        return False


def stop(children: list[subprocess.Popen[bytes]], code: int = 0) -> None:
    say("SIGTERM received. signum=None frame=None." if not code else "ending")
    for one in children:
        one.kill()
        one.wait()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank(*sys.argv[2:])
    else:
        serve(int(sys.argv[1]), sys.argv[2])
