"""SGLang's own offline Engine in a worker: scheduler, EAGLE worker, memory pools.

A job's scenario is ``engine:FILE``. FILE holds a JSON object, see ``request``. Engine's
processes are forked from the worker, which has everything imported; what their kernels
would do is done in torch (``mends``).
"""

PREFIX = "engine:"

#: What a worker with an engine needs of SGLang beside ``imports.ROOTS``.
ROOTS = (
    "sglang.srt.entrypoints.engine",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.managers.tokenizer_manager",
    "sglang.srt.speculative.eagle_worker",
    "sglang.srt.speculative.eagle_worker_v2",
    "sglang.srt.model_loader.loader",
    "sglang.srt.models.registry",
)
