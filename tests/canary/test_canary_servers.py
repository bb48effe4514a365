"""``canary check`` and a real SGLang server on this CPU (`make watch-servers`)."""

from __future__ import annotations

import json
import shutil
import sys
import time
import urllib.error
import urllib.request

import pytest
from support import ROOT, run_patchkit

sys.path.insert(0, str(ROOT / "tests" / "watch"))
serverkit = pytest.importorskip("serverkit")

from patchkit.canary.draft import draft_config, draft_tensors  # noqa: E402
from patchkit.canary.folder import write_checkpoint, write_pair  # noqa: E402
from patchkit.canary.plan import make_plan  # noqa: E402

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not serverkit.PYTHON, reason="no PATCHKIT_SERVER_PYTHON"),
]
PLAN = make_plan(tp=2)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """With a draft whose config has lost its ids, and one made for other layers."""
    out = tmp_path_factory.mktemp("canary") / "pair"
    write_pair(PLAN, out)
    plain = draft_config(PLAN, with_ids=False)
    shutil.copytree(out / "draft-ids", out / "ignored" / "draft-ids")
    (out / "ignored" / "draft-ids" / "config.json").write_text(json.dumps(plain))
    write_checkpoint(out / "late", plain, draft_tensors(PLAN, (2, 3, 5)))
    return out


def checked(pair, release, draft, ranks=1, *more):
    """What ``canary check`` says, in JSON, and its exit code."""
    server = serverkit.Server(
        release,
        ranks,
        model=pair / "target",
        extra=("--speculative-draft-model-path", str(pair / draft), *more),
    )
    with serverkit.running(server, pair / f"{server.port}.log") as process:
        for _ in range(600):
            assert process.poll() is None, "the server has ended"
            try:
                urllib.request.urlopen(f"{server.url}/health", timeout=20)
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        done = run_patchkit("canary", "check", server.url, "--pair", pair, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout), done.returncode


@pytest.mark.parametrize(
    ("release", "draft", "ranks", "length", "said"),
    [
        ("0.5.5", "draft", 1, 4, "every candidate"),  # no histogram
        ("0.5.9", "draft-ids", 2, 4, "every candidate"),
        ("0.5.23", "draft-positions", 1, 4, "every candidate"),
        ("0.5.9", "draft-positions", 1, 2, "their positions are off"),
        (
            "0.5.9",
            "ignored/draft-ids",
            1,
            1.25,
            "ids in the draft's config are ignored",
        ),
        ("0.5.23", "late", 1, 1.5, "slot 1 receives a state one layer late"),
    ],
)
def test_the_verdict(pair, release, draft, ranks, length, said):
    found, code = checked(pair, release, draft, ranks)
    assert said in found["verdict"], found
    assert abs(found["alone"]["accept_length"] - length) < 0.02
    assert code == (0 if length == 4 else 1)
    assert found["together"]["accept_length"] == found["alone"]["accept_length"]


def test_another_algorithm_is_refused(pair):
    more = ("--speculative-algorithm", "NEXTN")
    found, code = checked(pair, "0.5.9", "draft", 1, *more)
    assert code == 4 and "speculative-algorithm" in found["error"]["message"]
