"""Report tensors that the draft drops and parameters that nothing writes.

The draft's ``load_weights`` skips every name that it does not know, without a word, and
nobody looks whether all of its parameters were written. A checkpoint with ``layers.0.``
where the release wants ``midlayer.``, without ``lm_head``, or without ``d2t``, serves
a draft that is random in part.

``load_weights`` is wrapped by one line at the end of the class. While it runs, each
write into the memory of a parameter is observed (a ``TorchDispatchMode``: whatever way
a weight loader takes, also through ``.data``, also into one shard of a stacked
parameter), together with the name that was being loaded:

- a tensor that wrote nothing was dropped. ``d2t`` (the map to the target's tokens, in
  no parameter), ``t2d`` and ``rotary_emb.*`` are not counted;
- a parameter of which some elements were not written is reported with their number, so
  q without k and v, or one of gate and up, is seen on each rank;
- a draft vocabulary smaller than the target's, with no ``d2t``, is reported.

What the target supplies is exempt, as the release decides it: ``embed_tokens``, unless
the draft's ``target_hidden_size`` differs from its hidden size (``set_embed`` does
nothing then), and ``lm_head`` where ``load_lm_head_from_target`` is set. So are
``k_scale`` and ``v_scale``, which have a default.

By default the first load ends in a ValueError that names them; -O report=warning logs
it. Whatever is loaded later (weight updates, also from disk), and tensors that come as
a list at any time (updates of a server that started with random weights), are partial:
only dropped names are said, in the log. Loading is observed, never changed; nothing of
it is left in a forward pass. A loader that reads all tensors before it writes the
first hides which wrote what; then only unwritten parameters are reported.

All releases have this shape: 0.4.6 - 0.4.8.post1, which load through ``llama.py``, too.
There, ``fc`` has a bias that published checkpoints do not hold, so it is random, and
the guard says so: such a server starts with -O report=warning only.
"""

import libcst as cst

from patchkit.recipe import (
    AnchorMissing,
    BadOption,
    Constants,
    Members,
    Recipe,
    insert_members,
    method_of,
)


class WeightGuard(Recipe):
    version = 1
    summary = "report draft weights that are dropped or never written"
    releases = "0.4.6 - 0.5.23, recognised by shape"
    next_step = "restart the server: it says at its start what does not fit"
    options = {
        "report": ("error", "the first load: error raises, warning logs"),
    }
    sites = {
        "watch": "what observes a load",
        "load": "load_weights, observed",
    }
    fixes = ("weight-guard",)
    edits = {
        "srt/models/llama_eagle3.py": (
            Constants("watch", "watch"),
            Members("load", "LlamaForCausalLMEagle3", "observe"),
        ),
    }

    def check_options(self) -> None:
        if self.chosen["report"] not in ("error", "warning"):
            raise BadOption(f"report={self.chosen['report']}: give error or warning")

    def observe(self, owner: cst.ClassDef) -> cst.ClassDef:
        if method_of(owner, "load_weights") is None:
            raise AnchorMissing(
                "LlamaForCausalLMEagle3 has no load_weights of its own",
                like="def load_weights(self, weights",
            )
        return insert_members(
            owner,
            last=lambda depth: self.lines(
                ["", "load_weights = reports_weights(load_weights)"]
            ),
        )

    def watch(self) -> list[str]:
        lines = _WATCH.splitlines()
        if self.chosen["report"] == "warning":
            start = lines.index("            if full:")
            del lines[start : start + 2]
        return lines


#: At most 62 columns wide: the mark follows. It needs no name of the file around it.
_WATCH = """
def reports_weights(load_weights):
    import logging

    import torch
    from torch.utils import _python_dispatch as dispatch

    # given: the names that came; wrote: those that wrote;
    # parts: memory -> what was written of it
    class Watch(dispatch.TorchDispatchMode):
        def __init__(self, model):
            super().__init__()
            self.model, self.name = model, None
            self.given, self.wrote, self.parts = [], set(), {}
            self.memory = set(map(place, model.parameters()))

        def names(self, weights):
            for self.name, tensor in weights:
                self.given.append(self.name)
                yield self.name, tensor
                # a loader may give a parameter other memory
                now = set(map(place, self.model.parameters()))
                for new in now - self.memory:
                    self.wrote.add(self.name)
                    self.parts[new] = {(0, "all"): 1 << 62}
                self.memory = now

        def __torch_dispatch__(self, func, _, args=(), kw=()):
            kw = dict(kw)
            result = func(*args, **kw)
            for n, one in enumerate(func._schema.arguments):
                alias = one.alias_info
                if alias is None or not alias.is_write:
                    continue
                into = kw.get(one.name)
                into = args[n] if n < len(args) else into
                if isinstance(into, torch.Tensor):
                    self.note(into)
            return result

        def note(self, into):
            where = place(into)
            if where in self.memory:
                self.wrote.add(self.name)
                key = into.shape, into.stride()
                key = into.storage_offset(), key
                parts = self.parts.setdefault(where, {})
                parts[key] = into.numel()

    def place(tensor):
        return tensor.untyped_storage().data_ptr()

    def dropped(watch):
        for name in watch.given:
            no_weights = "d2t", "t2d", "rotary_emb."
            if any(one in name for one in no_weights):
                continue
            if name not in watch.wrote:
                yield name

    def unwritten(watch):
        model, config = watch.model, watch.model.config
        hidden = config.hidden_size
        supplied = [".k_scale", ".v_scale"]
        target = getattr(config, "target_hidden_size", hidden)
        if target == hidden:
            supplied.append("embed_tokens")
        if getattr(model, "load_lm_head_from_target", False):
            supplied.append("lm_head")
        for name, one in model.named_parameters():
            if any(given in name for given in supplied):
                continue
            start, size = one.storage_offset(), one.numel()
            left = size
            parts = watch.parts.get(place(one), {})
            for (at, _), part in parts.items():
                if start <= at < start + size:
                    left -= part
            if left > 0:
                yield f"{name} ({left} of {size} elements)"
        words = getattr(config, "draft_vocab_size", None)
        if words and words < config.vocab_size:
            if getattr(model, "hot_token_id", None) is None:
                yield "hot_token_id (no d2t came)"

    def listed(names):
        more = f" and {len(names) - 6} more" * bool(names[6:])
        return ", ".join(names[:6]) + more

    def load_and_report(self, weights):
        # a list is an update of some weights
        full = not isinstance(weights, list)
        full = full and not hasattr(self, "weights_reported")
        watch = Watch(self)
        with watch:
            result = load_weights(self, watch.names(weights))
        lost, bare = list(dropped(watch)), []
        if full:
            self.weights_reported = True
            bare = list(unwritten(watch))
        if not bare and len(watch.wrote) < 2:
            lost = []  # read ahead: whose writes is unknown
        told = []
        if lost:
            told.append(
                "the draft does not know these tensors, and"
                f" dropped them: {listed(lost)}"
            )
        if bare:
            told.append(
                "nothing wrote these parameters of the draft:"
                f" {listed(bare)}"
            )
        if told:
            problem = (
                f"weight-guard: {'; '.join(told)}. Compare"
                " the checkpoint's names with those that"
                " llama_eagle3.py takes in load_weights"
            )
            if full:
                raise ValueError(problem)
            logging.getLogger(__name__).warning(problem)
        return result

    return load_and_report
"""
