"""Makes SGLang's server run on this CPU: see ``sitecustomize``. And plants faults.

``PLANT`` holds JSON, ``{module: [[old text, new text], ...]}``, which is how a test
makes a rank hang, crash or crawl.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys

import draft_kernels
import placeholders

PLANTED = json.loads(os.environ.get("PLANT", "{}"))
#: module -> what is done once it is loaded
AFTER = {}
#: modules of older releases that ask for CUDA by name
HARD_CODED = {
    f"sglang.srt.speculative.{name}"
    for name in ("spec_utils", "eagle_utils", "eagle_info", "eagle_worker")
}


def crawl(tensor):
    """For a planted fault: read a large tensor as from a very slow disk, a megabyte at
    a time (each of its pages), and hand it on."""
    import time

    flat = tensor.view(-1)
    for at in range(1 << 18, flat.numel(), 1 << 18):
        flat[at : at + (1 << 18) : 1024].sum()
        time.sleep(float(os.environ["CRAWL"]))
    return tensor


def after(*names):
    def remember(function):
        for name in names:
            AFTER.setdefault(name, []).append(function)
        return function

    return remember


def prepare():
    import torch

    if not hasattr(torch._C._cpu, "_is_amx_tile_supported"):
        torch._C._cpu._is_amx_tile_supported = lambda: False
    placeholders.KERNELS.update(draft_kernels.KERNELS)
    placeholders.REPLACED.update(
        {f"sgl_kernel.{name}": one for name, one in draft_kernels.COMPILED.items()}
    )
    missing = [
        one for one in placeholders.NAMES if importlib.util.find_spec(one) is None
    ]
    placeholders.install(missing)
    from transformers.models.auto import configuration_auto

    mapping = configuration_auto.CONFIG_MAPPING
    register = mapping.register
    mapping.register = lambda key, value, exist_ok=False: register(
        key, value, exist_ok=True
    )
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *a, **k: None
    torch.Tensor.record_stream = lambda self, stream: None
    sys.meta_path.insert(0, _Loading())


class _Loading(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.busy = set()

    def find_spec(self, name, path=None, target=None):
        wanted = name in AFTER or name in PLANTED or name in HARD_CODED
        if not wanted or name in self.busy:
            return None
        self.busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy.discard(name)
        if spec is None:
            return None
        spec.loader = _Edited(name, spec.origin)
        return spec


class _Edited(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        for old, new in PLANTED.get(name, ()):
            assert old in text, f"{name} has no {old!r} to plant a fault at"
            text = text.replace(old, new, 1)
        if name in HARD_CODED:
            text = text.replace('device="cuda"', 'device="cpu"')
        return compile(text, self.path, "exec")

    def exec_module(self, module):
        super().exec_module(module)
        for function in AFTER.get(module.__name__, ()):
            function(module)


# -- attention on a CPU ---------------------------------------------------------------


@after("sglang.srt.layers.attention.torch_native_backend")
def _attention(module):
    """Verify, draft extend and draft decode, which torch_native does not know."""
    base = module.TorchNativeAttnBackend

    class Backend(base):
        #: a draft's i-th decode step sees so many tokens more
        extra = 0

        def forward_extend(self, q, k, v, layer, batch, save_kv_cache=True, **named):
            lengths = _lengths(batch)
            if lengths is None:
                return super().forward_extend(q, k, v, layer, batch, save_kv_cache)
            kept = batch.seq_lens, batch.extend_prefix_lens, batch.extend_seq_lens
            batch.seq_lens, batch.extend_prefix_lens, batch.extend_seq_lens = lengths
            try:
                return super().forward_extend(q, k, v, layer, batch, save_kv_cache)
            finally:
                batch.seq_lens, batch.extend_prefix_lens, batch.extend_seq_lens = kept

        def forward_decode(self, q, k, v, layer, batch, save_kv_cache=True, **named):
            kept = batch.seq_lens
            batch.seq_lens = kept + self.extra
            try:
                return super().forward_decode(q, k, v, layer, batch, save_kv_cache)
            finally:
                batch.seq_lens = kept

        def update_verify_buffers_to_fill_after_draft(self, info, size):
            pass

        def get_verify_buffers_to_fill_after_draft(self):
            return [None, None]

    class Steps:
        def __init__(self, runner, topk, steps):
            self.attn_backends = []
            for index in range(max(steps - 1, 1)):
                self.attn_backends.append(Backend(runner))
                self.attn_backends[-1].extra = index + 1

        def init_forward_metadata(self, batch):
            pass

    module.TorchNativeAttnBackend = Backend
    module.TorchNativeMultiStepDraftBackend = Steps


def _lengths(batch):
    import torch

    mode = batch.forward_mode
    if mode.is_target_verify():
        count = batch.spec_info.draft_token_num
        each = torch.full_like(batch.seq_lens, count)
        return batch.seq_lens + count, batch.seq_lens, each
    drafting = any(
        getattr(mode, name, lambda: False)()
        for name in ("is_draft_extend_v2", "is_draft_extend")
    )
    if not drafting:
        return None
    told = batch.extend_seq_lens
    told = batch.spec_info.accept_length if told is None else told
    each = torch.as_tensor(told, dtype=batch.seq_lens.dtype)
    return batch.seq_lens, batch.seq_lens - each, each


@after("sglang.srt.speculative.draft_utils")
def _draft_backends(module):
    factory = module.DraftBackendFactory

    def native():
        from sglang.srt.layers.attention import torch_native_backend

        return torch_native_backend

    def steps(self):
        return native().TorchNativeMultiStepDraftBackend(
            self.draft_model_runner, self.topk, self.speculative_num_steps
        )

    def one(self):
        return native().TorchNativeAttnBackend(self.draft_model_runner)

    if hasattr(factory, "_create_intel_amx_decode_backend"):
        create = factory._create_backend

        def _create_backend(self, name, known, message, **named):
            decode = "decode" in message and "extend" not in message
            chain = decode and named.get("stamps_children")
            made = steps if chain else one
            entry = {"torch_native": lambda: ("torch_native", made(self))}
            return create(self, name, {**known, **entry}, message, **named)

        factory._create_backend = _create_backend
    elif hasattr(factory, "_create_triton_decode_backend"):
        factory.create_decode_backend = steps
        factory.create_draft_extend_backend = one


@after(
    "sglang.srt.models.deepseek_common.attention_backend_handler",
    "sglang.srt.models.deepseek_v2",
)
def _latent_attention(module):
    registry = getattr(module, "AttentionBackendRegistry", None)
    if registry is not None and registry._handlers.get("torch_native") is None:
        registry.register("torch_native", lambda *a: module.AttnForwardMethod.MLA)


@after("sglang.srt.mem_cache.memory_pool")
def _no_kernel_warm_up(module):
    pool = module.MHATokenToKVPool
    if hasattr(pool, "_init_kv_copy_and_warmup"):
        pool._init_kv_copy_and_warmup = lambda self: setattr(
            self, "_kv_copy_config", None
        )


@after("sglang.srt.utils.triton_load_watch")
def _no_triton_watch(module):
    module.install = lambda *a, **k: None


@after(
    *(
        f"sglang.{name}"
        for name in (
            "srt.speculative.eagle_info_v2",
            "srt.speculative.eagle_utils",
            "srt.speculative.triton_ops.cache_locs",
            "srt.speculative.spec_utils",
            "kernels.ops.speculative.cache_locs",
            "kernels.ops.speculative.spec_tree",
            "jit_kernel.speculative.cache_locs",
        )
    )
)
def _functions_without_a_cpu_branch(module):
    with open(module.__file__, encoding="utf-8") as file:
        text = file.read()
    if "_is_cpu" in text:
        return
    for name, one in (
        ("assign_extend_cache_locs_func", draft_kernels.extend_locs_func),
        ("verify_tree_greedy_func", draft_kernels.verify_func),
        ("sgl_build_tree_kernel_efficient", draft_kernels.build_tree),
    ):
        if name in text:
            setattr(module, name, one)
