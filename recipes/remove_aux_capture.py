"""Take the aux-hidden-state capture out of the target model.

For a server that never uses EAGLE-3, or as the proof that the capture is not at fault:
``deepseek_v2.py`` is left as if it had never captured anything. Out go the layers to
capture and the flag, the capture in the layer loop (or the layer call's keyword
``captured_last_layer_outputs``, with the decoder layer's parameter, and the packer),
the tuple return, its unpacking, the argument of the logits processor, attributes and
locals that only fed these, and imports that nothing else in the file uses. What the
model computes, and its logits, stay the same to the bit. The setters
(``set_eagle3_layers_to_capture``, ``set_dflash_layers_to_capture``) stay, and raise a
clear error: a server with an EAGLE-3 draft ends at its start, not with a strange one
later.

``logits_processor.py`` is left alone: 14 (0.5.5) to 44 (0.5.23) other models of the
tree hand it their aux states, and the report lists them. ``-O logits=yes`` takes the
handling of aux states out of it, too: the parameter, the pruning, the concatenation.
That is refused while such models remain, since their forward would fail;
``-O force=yes`` does it all the same, for a tree that serves DeepSeek only.
``-O draft=yes`` takes the ``fc`` path out of ``llama_eagle3.py``: the width guard with
what stands in it, and the layers and attributes that only feed it. Such a draft takes
the states that it is given as they come. It is refused for the same reason: drafts of
other targets need it. With either, no draft can be run, by ``patchkit verify`` neither.

Where another model uses the decoder layer's parameter, this parameter stays. Releases
before 0.5.4.post2 capture nothing: NOT_NEEDED. A shape that is not known is refused,
with the line.

The recipe removes lines of SGLang instead of adding marked ones, so its changes rest on
the journal alone: ``patchkit revert`` brings them back to the byte, but a tree that has
lost its journal can't. It can't be applied together with the recipes that need the
capture, and goes behind those that look for hand-written debug code.
"""

from patchkit.recipe import Recipe, RemovesCapture


class RemoveAuxCapture(RemovesCapture, Recipe):
    version = 1
    summary = "take the aux-hidden-state capture out of deepseek_v2.py"
    releases = "0.5.4.post2 - 0.5.23, recognised by shape"
    next_step = "patchkit verify; patchkit revert brings the capture back"
    inserts_only = False
    after = ("gate-debug-logging", "remove-debug-logging")
    excludes = (
        "aux-capture",
        "gate-aux-capture",
        "capture-after-allreduce",
        "embedding-capture",
        "keep-layer-ids",
        "sort-layer-ids",
    )
    looks_at = ("srt/models/*.py",)
    fixes = ("capture-removed",)
    without_draft = ("logits", "draft")
    changes = (
        "*-default.*",
        "extend-shifted.*",
        "*-last.states",
        "prefill.last",
        "prefill.states",
        "extend-logprobs*",
    )
    files = (
        "srt/models/deepseek_v2.py",
        "srt/layers/logits_processor.py",
        "srt/models/llama_eagle3.py",
    )
    options = {
        "logits": ("no", "yes: take aux states out of logits_processor.py, too"),
        "draft": ("no", "yes: take the fc path out of llama_eagle3.py, too"),
        "force": ("no", "yes: do so although other models of the tree need it"),
    }
    sites = {
        "capture": "nothing is captured, the setters say so",
        "logits": "what becomes of the logits processor's side, and why",
        "draft": "what becomes of the draft's side, and why",
    }
