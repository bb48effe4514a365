"""Verdicts on made-up servers: no process, no file, no waiting."""

from __future__ import annotations

import pytest
from watchkit import BEGAN, Play, stamp, traceback

from patchkit.watch.settings import Until
from patchkit.watch.stacks import Dump, Frame
from patchkit.watch.verdict import Outcome

REDUCE = Frame("all_reduce", "torch/distributed.py", 1)
LOCK = Frame("acquire", "threading.py", 2)
STACKS = [Dump("TP0", 100, (REDUCE,)), Dump("TP1", 101, (LOCK,))]


def test_ready_with_the_time_of_each_phase():
    play = Play().load(draft=True).serve()
    play.say("The server is fired up and ready to roll!").wait(2)
    assert play.verdict.outcome is Outcome.READY and play.verdict.exit_code == 0
    assert [name for name, _ in play.verdict.phases] == [
        *("start", "distributed target", "weights target", "memory target"),
        *("graphs target", "distributed draft", "weights draft", "memory draft"),
        *("graphs draft", "warm-up"),
    ]
    took = dict(play.verdict.phases)
    assert took["start"] == pytest.approx(5) and took["weights target"] == 1


def test_uvicorn_is_not_ready():
    play = Play().load().serve().wait(8)
    assert play.verdict is None
    assert play.judge.phases.label() == "warm-up"


def test_ready_is_believed_once_a_request_is_answered():
    play = Play(request=True).ready().wait(5)
    assert play.verdict is None
    play.answer("/generate", status=200, seconds=0.4).wait(1)
    assert play.verdict.outcome is Outcome.READY
    assert "a request took 0.4 s" in play.verdict.says


def test_a_request_that_is_refused_for_want_of_a_key_is_an_answer():
    play = Play(request=True).ready()
    play.answer("/generate", status=401, error="no key").wait(1)
    assert play.verdict.outcome is Outcome.READY
    assert "401" in play.verdict.notes[0]


def test_unhealthy_while_http_answers():
    play = Play(request=True).ready().wait(1)
    play.answer("/model_info", status=200).answer("/health", status=200)
    play.answer("/generate", late=True, seconds=20).wait(1)
    assert play.verdict is None, "its stacks come first"
    play.dumps(STACKS).wait(1)
    assert play.verdict.outcome is Outcome.UNHEALTHY and play.verdict.exit_code == 1
    assert "/health said 200" in play.verdict.says
    assert play.verdict.rank == "TP1"


def test_a_late_answer_of_a_busy_engine_is_not_unhealthy():
    play = Play(request=True).ready().wait(1)
    play.judge.request_sent()
    play.say("Decode batch. #running-req: 60", "TP0")
    play.answer("/generate", late=True, seconds=20).dumps(STACKS).wait(5)
    assert play.verdict is None
    play.answer("/generate", status=200).wait(1)
    assert play.verdict.outcome is Outcome.READY


def test_an_engine_that_answers_with_an_error():
    play = Play(request=True).ready()
    play.answer("/generate", status=500, error="boom").dumps(STACKS).wait(1)
    assert play.verdict.outcome is Outcome.UNHEALTHY
    assert "with 500: boom" in play.verdict.says


def test_nobody_listens_at_the_url_that_was_given():
    play = Play(request=True, url="http://x").ready()
    for _ in range(3):
        play.answer("/generate", refused=True, error="refused")
    play.dumps(STACKS).wait(1)
    assert play.verdict.outcome is Outcome.UNHEALTHY
    play = Play(request=True).ready()
    for _ in range(3):
        play.answer("/generate", refused=True, error="refused")
    assert play.wait(1).verdict.outcome is Outcome.READY, "the log's port is a guess"


@pytest.mark.parametrize(
    ("until", "at"), [(Until.WEIGHTS, "memory"), (Until.GRAPHS, "scheduler")]
)
def test_until(until, at):
    play = Play(until=until).load()
    play.serve()
    assert play.verdict.outcome is Outcome.REACHED and play.verdict.exit_code == 0
    assert at in play.verdict.phase or at == "memory"


def test_until_weights_waits_for_every_rank_and_the_draft():
    play = Play(until=Until.WEIGHTS).arguments(speculative_algorithm="EAGLE3")
    for rank in ("TP0", "TP1"):
        play.say("Load weight begin.", rank)
    play.say("Load weight end.", "TP0").say("Load weight end.", "TP1").wait(1)
    assert play.verdict is None, "the draft is missing"
    play.say("Load weight begin.", "TP0").say("Load weight end.", "TP0").wait(1)
    assert play.verdict is None, "TP1's draft is missing"
    play.say("Load weight begin.", "TP1").say("Load weight end.", "TP1").wait(1)
    assert play.verdict.outcome is Outcome.REACHED


# -- crashes --------------------------------------------------------------------------


def test_the_first_failing_rank_and_not_its_victims():
    play = Play().load()
    play.say(
        "Scheduler hit an exception: " + traceback("RuntimeError: Connection closed by"
        " peer [127.0.0.1]:5"), "TP0",
    )  # fmt: skip
    play.say("Scheduler hit an exception: " + traceback("KeyError: 'x.weight'"), "TP1")
    play.say("Received sigquit from a child process. It usually means").wait(3)
    assert play.verdict.outcome is Outcome.CRASHED and play.verdict.exit_code == 1
    assert (play.verdict.rank, play.verdict.cause) == ("TP1", "weights-do-not-fit")
    assert play.verdict.details[-1] == "KeyError: 'x.weight'"


def test_a_crash_is_known_within_two_seconds():
    play = Play().load()
    said = play.now
    play.say("Scheduler hit an exception: " + traceback("ValueError: no"), "TP0")
    play.wait(5)
    assert play.now - said <= 2


def test_a_crash_in_a_log_that_goes_on():
    play = Play().load()
    said = play.now
    play.say("Scheduler hit an exception: " + traceback("ValueError: no"), "TP0")
    while play.verdict is None:
        play.say("Waiting 60.0 seconds for CUDA coredumps").wait(0.5)
    assert play.now - said <= 2.5
    assert play.verdict.rank == "TP0"


@pytest.mark.parametrize(
    ("error", "cause", "recipe"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "out-of-memory", "",
        ),
        (
            "RuntimeError: Not enough memory. Please try to increase"
            " --mem-fraction-static.", "kv-memory", "",
        ),
        ("ModuleNotFoundError: No module named 'deep_ep'", "missing-module", ""),
        ("ImportError: cannot import name 'x' from 'y'", "import-error", ""),
        (
            "AttributeError: 'KimiK25ForConditionalGeneration' object has no attribute"
            " 'set_eagle3_layers_to_capture'", "eagle3-delegates", "kimi-k25-eagle3",
        ),
        (
            "AttributeError: 'DeepseekV3ForCausalLM' object has no attribute"
            " 'set_eagle3_layers_to_capture'", "no-capture", "aux-capture",
        ),
        (
            "RuntimeError: Cannot copy between CPU and CUDA tensors during CUDA graph"
            " capture unless the CPU tensor is pinned.",
            "capture-unsafe", "gate-debug-logging",
        ),
        (
            "torch.AcceleratorError: CUDA error: operation not permitted when stream is"
            " capturing", "capture-unsafe", "gate-debug-logging",
        ),
        (
            "Exception: Capture cuda graph failed: CUDA error: out of memory\nPossible"
            " solutions:\n1. set --mem-fraction-static to a smaller value",
            "out-of-memory", "",
        ),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header:"
            " MetadataIncompleteBuffer", "weights-broken", "",
        ),
        ("RuntimeError: Cannot find any model weights with `m`", "weights-missing", ""),
        ("ValueError: too many values to unpack (expected 2)", "nothing-captured", ""),
        (
            "RuntimeError: NCCL error in: NCCL.cpp:1, unhandled system error",
            "peer-lost", "",
        ),
        ("OSError: [Errno 28] No space left on device: '/tmp/x'", "disk-full", ""),
        ("ZeroDivisionError: division by zero", "", ""),
    ],
)  # fmt: skip
def test_what_is_known_of_a_failure(error, cause, recipe):
    play = Play(ranks=("",)).load()
    play.say("Scheduler hit an exception: " + traceback(error)).wait(3)
    assert play.verdict.outcome is Outcome.CRASHED
    assert play.verdict.cause == cause
    assert recipe in play.verdict.next
    assert play.verdict.next, "there is always a next step"
    assert play.verdict.rank == "" and "rank 0 failed" in play.verdict.says


def test_every_recipe_that_a_failure_names_exists():
    import re

    from patchkit.registry import Registry
    from patchkit.watch.causes import CAUSES

    known = {info.name for info in Registry().near()}
    named = {
        name
        for cause in CAUSES
        for name in re.findall(r"patchkit apply ([a-z0-9-]+)", cause.next)
    }
    assert len(named) >= 3 and named <= known


def test_a_killed_rank_is_the_cause_though_others_cry_first():
    play = Play().load()
    play.say("Scheduler hit an exception: " + traceback("RuntimeError: Connection reset"
             " by peer"), "TP0")  # fmt: skip
    play.wait(3, gone=("TP1",))
    assert (play.verdict.rank, play.verdict.cause) == ("TP1", "gone")
    assert "TP0 then lost its connection" in play.verdict.says


def test_a_rank_that_is_killed_without_a_line():
    play = Play().load().wait(3, gone=("TP1",))
    assert play.verdict.outcome is Outcome.CRASHED
    assert play.verdict.rank == "TP1" and "dmesg" in play.verdict.next


def test_the_exit_code_in_the_log_names_the_signal():
    play = Play().load()
    play.say("Rank 1 scheduler is dead. Please check").say("Exit code: -9").wait(3)
    assert (play.verdict.rank, play.verdict.cause) == ("TP1", "killed")


def test_the_server_that_tells_of_a_killed_rank_is_not_what_failed():
    """0.5.11 on: all processes are gone before the rank was seen to be."""
    play = Play().load()
    error = "RuntimeError: Rank 1 scheduler died during initialization (exit code: -9)."
    play.say(traceback(f"{error} Run `dmesg -T`"), bare=True)
    play.wait(3, root=False, exit_code=1)
    assert (play.verdict.rank, play.verdict.cause) == ("TP1", "killed")


def test_the_server_ends_without_a_word():
    play = Play(ranks=("",)).arguments().say("a last line").wait(1)
    play.wait(3, root=False, exit_code=-9)
    assert play.verdict.cause == "killed" and play.verdict.rank is None
    play = Play(ranks=("",)).arguments().say("a last line").wait(1)
    play.wait(3, root=False, exit_code=2)
    assert "exit code 2" in play.verdict.says
    assert "  a last line" in play.verdict.details


def test_a_traceback_that_python_prints_as_the_server_ends():
    play = Play(ranks=()).arguments()
    play.say(traceback("OSError: /x does not appear to have a file named config.json"),
             bare=True)  # fmt: skip
    play.wait(3)
    assert play.verdict is None, "a thread may die, and the server go on"
    play.wait(3, root=False, exit_code=1)
    assert play.verdict.cause == "weights-missing"
    assert "the server failed" in play.verdict.says


def test_a_port_in_use():
    play = Play(ranks=("",)).load()
    play.say("ERROR:    [Errno 98] error while attempting to bind on address"
             " ('127.0.0.1', 30000): address already in use").wait(3)  # fmt: skip
    assert play.verdict.cause == "port-in-use"


def test_tracebacks_with_which_nothing_ended_are_no_crash():
    play = Play()
    play.say("Can not initialize OpenAIServingResponses, error: "
             + traceback("ModuleNotFoundError: No module named 'x'"))  # fmt: skip
    play.say("Ignore import error when loading sglang.srt.models.x: No module named y")
    play.ready().wait(3)
    assert play.verdict.outcome is Outcome.READY


def test_a_chain_of_exceptions_ends_in_the_one_that_was_raised():
    chain = (
        traceback("KeyError: 'inner'")
        + "\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + traceback("ValueError: outer")
    )
    play = Play(ranks=("",)).load()
    play.say("Scheduler hit an exception: " + chain).wait(3)
    assert "ValueError: outer" in play.verdict.says
    assert "KeyError: 'inner'" in play.verdict.details


def test_stopped_by_somebody():
    play = Play(until=Until.END).ready().wait(2)
    play.say("SIGTERM received. signum=None frame=None. Draining requests")
    play.wait(3, root=False, exit_code=0)
    assert play.verdict.outcome is Outcome.STOPPED and play.verdict.exit_code == 0
    play = Play().load().say("SIGTERM received. signum=None frame=None. Draining")
    play.wait(3, root=False, exit_code=0)
    assert play.verdict.outcome is Outcome.STOPPED and play.verdict.exit_code == 1


def test_a_crash_after_ready():
    play = Play(until=Until.END).ready().wait(2)
    play.say("Scheduler hit an exception: " + traceback("ValueError: no"), "TP1").wait(
        3
    )
    assert play.verdict.outcome is Outcome.CRASHED
    assert "after it was ready" in play.verdict.says


# -- hangs ----------------------------------------------------------------------------


def loading(**settings):
    play = Play(**settings).arguments().wait(2, busy=True)
    for rank in play.ranks:
        play.say("Load weight begin. avail mem=70 GB", rank)
    return play.wait(1, busy=True)


def test_hung():
    play = loading().wait(25)
    assert play.verdict is None, "its stacks come first"
    assert play.judge.wants_stacks(BEGAN + play.now, 5.0)
    play.dumps(STACKS).wait(1)
    assert play.verdict.outcome is Outcome.HUNG and play.verdict.exit_code == 1
    assert (play.verdict.rank, play.verdict.cause) == ("TP1", "rank-differs")
    assert "TP1 differs" in play.verdict.details[0]


def test_a_stopped_rank():
    play = loading().wait(25, states={"TP0": "T"}).dumps(STACKS)
    play.wait(1, states={"TP0": "T"})
    assert (play.verdict.rank, play.verdict.cause) == ("TP0", "stopped")
    assert play.verdict.next == "kill -CONT 100"


def test_hung_without_stacks_says_why():
    play = loading().wait(25)
    play.dumps([Dump("TP0", 100, why="no ptrace"), Dump("TP1", 101, why="no ptrace")])
    play.wait(1)
    assert play.verdict.outcome is Outcome.HUNG
    assert "no stack of TP0-1: no ptrace" in play.verdict.details


def test_stacks_that_ranks_write_to_the_log_are_no_movement():
    play = loading().wait(25)
    play.say('  File "x.py", line 3 in acquire', bare=True).dumps(STACKS).wait(1)
    assert play.verdict.outcome is Outcome.HUNG


def test_movement_makes_old_stacks_worthless():
    play = loading().wait(25).dumps(STACKS)
    play.say("something at last", "TP0").wait(10)
    assert play.verdict is None and not play.judge.dumps


def test_ranks_that_spin_are_hung_only_if_no_stack_changes():
    play = loading().wait(25, busy=True)
    assert play.verdict is None and play.judge.wants_stacks(BEGAN + play.now, 5.0)
    for line in range(12):
        moving = [Dump("TP0", 100, (Frame("f", "x.py", line),)), STACKS[1]]
        play.dumps(moving).wait(5, busy=True)
    assert play.verdict is None
    for _ in range(5):
        play.dumps(STACKS).wait(5, busy=True)
    assert play.verdict.outcome is Outcome.HUNG
    assert "CPU or GPU is used" in play.verdict.says


def test_ranks_that_spin_and_have_no_stacks_are_not_called_hung_but_described():
    play = loading(timeout=100.0)
    while play.verdict is None:
        play.wait(5, busy=True).dumps([Dump("TP0", 100, why="no ptrace")])
    assert play.verdict.outcome is Outcome.LOADING
    assert (
        "CPU or GPU is used" in play.verdict.says and "no ptrace" in play.verdict.says
    )
    assert dict(play.verdict.phases)["weights"] == pytest.approx(98, abs=3)


def test_a_load_that_reads_is_slow_and_not_hung():
    play = loading(timeout=120.0)
    while play.verdict is None:
        done = int(play.now * 1000)
        play.wait(1, loaded=(("TP0", done), ("TP1", done // 2)), checkpoint=10**6)
    assert play.verdict.outcome is Outcome.LOADING and play.verdict.exit_code == 5
    assert play.verdict.fraction == pytest.approx(0.09, abs=0.01)
    assert play.verdict.eta == pytest.approx((1 - 0.09) / 0.00075, rel=0.1)
    assert "still loading, in weights" in play.verdict.says


def test_other_nodes_are_waited_for():
    play = Play().arguments(nnodes=2).say("Init torch distributed begin.", "TP0")
    play.wait(60).dumps(STACKS).wait(5)
    assert play.verdict is None


def test_without_processes_a_silent_log_is_no_hang():
    play = Play(timeout=100.0).arguments().say("Load weight begin.", "TP0")
    while play.verdict is None:
        play.now += 1
        play.verdict = play.judge.decide(BEGAN + play.now)
    assert play.verdict.outcome is Outcome.LOADING
    assert "--pid" in play.verdict.next


# -- logs -----------------------------------------------------------------------------


def test_a_second_start_in_one_log_forgets_the_first():
    play = Play().load()
    play.say("Scheduler hit an exception: " + traceback("ValueError: no"), "TP1")
    play.ready().wait(3)
    assert play.verdict.outcome is Outcome.READY
    assert "more than one start" in play.verdict.notes[0]


def test_old_lines_of_an_earlier_server_do_not_count():
    play = Play()
    play.judge.clock.not_before = BEGAN
    for raw in (stamp(-60) + "Scheduler hit an exception: " + traceback("ValueError: x")
                ).split("\n"):  # fmt: skip
        play.judge.feed(raw, BEGAN, fresh=False)
    play.ready().wait(3)
    assert play.verdict.outcome is Outcome.READY


def test_a_server_whose_clock_is_elsewhere():
    """A container in UTC, watched from outside."""
    play = Play(ranks=("",))
    real, play.now = play.now, play.now - 7200
    old = stamp(play.now) + "server_args=ServerArgs(model_path='x')"
    play.judge.feed(old, BEGAN, fresh=False)
    line = stamp(play.now + 4) + "Load weight begin."
    play.now = real + 4
    play.judge.feed(line, BEGAN + play.now)
    assert play.judge.phases.since() == pytest.approx(BEGAN + 4, abs=1)
    assert play.judge.phases.began == pytest.approx(BEGAN, abs=1)


def test_ranks_in_different_phases_are_told_apart():
    play = Play(ranks=tuple(f"TP{i}" for i in range(8))).arguments()
    for rank in play.ranks:
        play.say("Load weight begin.", rank)
    for rank in play.ranks[:3]:
        play.say("Load weight end.", rank)
    assert play.judge.phases.label() == "weights"
    assert play.judge.phases.spread() == "TP0-2 after weights, TP3-7 weights"
