"""Run the later draft steps at the right positions.

After a verify step the draft's KV cache holds ``seq_len`` tokens, so what the first
draft step works on is at position ``seq_len``, the next one's token one behind that.
Up to 0.5.11 the workers add one before each of these steps instead of after it
(sgl-project/sglang#25015): the second and later candidates are guessed by a draft that
sees all of its text one farther away than it is. Nothing fails; fewer of them are
accepted, and how many fewer depends on the draft.

In front of the first step one is taken off, so that the step's own addition gives
``seq_len``. Nothing else changes, the positions that verification uses are others, and
CUDA graphs capture the change: one more kernel for each round of draft steps. It holds
for EAGLE-3, EAGLE and NextN drafts alike, and for both workers
(``SGLANG_ENABLE_SPEC_V2``), where a release has both.

From 0.5.12 on one is added after the step: NOT_NEEDED. A worker that moves positions
in another way, or touches them elsewhere in ``draft_forward``, is left alone and
reported; what its callers make of them is not looked at. It takes no options.
"""

import libcst as cst

from patchkit.recipe import (
    Ambiguous,
    AnchorMissing,
    Insertion,
    Method,
    NotNeeded,
    Recipe,
    Statement,
    code,
    insert,
    only,
    statements,
)

STEPS = "range(self.speculative_num_steps)"


class DraftStepPositions(Recipe):
    version = 1
    summary = "run the later draft steps at the right positions"
    releases = "up to 0.5.11, recognised by shape"
    next_step = "patchkit verify --engine --only engine-steps, then restart the server"
    absent = {
        "srt/speculative/eagle_worker.py": "this release has one worker, the v2",
        "srt/speculative/eagle_worker_v2.py": "this release has one worker",
    }
    sites = {
        "worker": "the draft steps of the worker",
        "worker_v2": "the draft steps of the overlapping worker",
    }
    fixes = ("engine-steps",)
    edits = {
        "srt/speculative/eagle_worker.py": (
            Method("worker", "EAGLEWorker", "draft_forward", "one_back"),
        ),
        "srt/speculative/eagle_worker_v2.py": (
            Method(
                "worker_v2",
                "EagleDraftWorker EAGLEWorkerV2",
                "draft_forward",
                "one_back",
            ),
        ),
    }

    def one_back(self, function: cst.FunctionDef) -> cst.FunctionDef:
        loops = [
            one
            for one in statements(function)
            if isinstance(one, cst.For) and code(one.iter) == STEPS
        ]
        if len(loops) != 1:
            like = f"for i in {STEPS}:"
            raise AnchorMissing(f"{len(loops)} loops over the draft steps", like=like)
        (loop,) = loops
        found = list(statements(loop))
        moves = [one for one in found if _moved(one)]
        runs = [one for one in found if _runs_the_draft(one)]
        if len(runs) != 1:
            raise Ambiguous(
                f"the draft runs {len(runs)} times in the loop over its steps"
            )
        before = [one for one in moves if found.index(one) < found.index(runs[0])]
        if moves and not before:
            raise NotNeeded("the positions move on after each step")
        if len(moves) != 1 or not isinstance(loop.target, cst.Name):
            raise Ambiguous("the positions move in a way that is not known")
        if moves[0] not in loop.body.body:
            raise Ambiguous("the positions move on under a condition: fixed by hand?")
        others = [
            one
            for one in statements(function)
            if isinstance(one, cst.SimpleStatementLine)
            and one not in (moves[0], runs[0])
            and "positions" in code(one)
        ]
        if others:
            line = code(others[0]).strip()
            raise Ambiguous(f"`{line}` is about positions, too: fixed by hand?")
        step, positions = loop.target.value, _moved(moves[0])

        def build(depth: int) -> list[Statement]:
            return self.lines([f"if {step} == 0:", f"    {positions}.sub_(1)"])

        return insert(function, Insertion(moves[0], before=build))


def _moved(statement: cst.CSTNode) -> str:
    """``batch.positions`` of ``batch.positions.add_(1)``; "" for all else."""
    node = only(statement)
    if not isinstance(node, cst.Expr) or not isinstance(node.value, cst.Call):
        return ""
    text = code(node.value)
    positions = text.removesuffix(".add_(1)")
    return positions if positions != text and positions.endswith(".positions") else ""


def _runs_the_draft(statement: cst.CSTNode) -> bool:
    node = only(statement)
    return isinstance(node, cst.Assign) and ".forward(" in code(node.value)
