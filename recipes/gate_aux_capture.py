"""Put the aux-hidden-state capture behind an environment variable.

With ``SGLANG_AUX_CAPTURE=0`` (or false, no, off) in the environment, the target
captures nothing for EAGLE-3: the setters of layers to capture
(``set_eagle3_layers_to_capture``, and ``set_dflash_layers_to_capture`` where there is
one) raise at the server's start, with a clear message, and a forward pass finds no
layers to capture, whatever something else has put into ``layers_to_capture``. Unset,
everything is as it was. So one tree serves with and without its draft, and whether the
capture is at fault is found out without an edit.

The variable is read once, when ``deepseek_v2.py`` is imported, into a constant of the
module. ``forward`` of the model and of the model with its head test this constant
before anything else, and while it is off, drop the layers and the flag that the layer
loop, the return and the unpacking go by. While it is on, that is one test of a constant
a forward pass; in a CUDA graph it is nothing.

All shapes of the capture are known: in the layer loop (0.5.4.post2 - 0.5.13.post1, and
what ``aux-capture`` inserts before), by the layer call's keyword
``captured_last_layer_outputs`` (0.5.14 - 0.5.16), and into a packer (0.5.17 on).
Releases before 0.5.4.post2 capture nothing, so this is NOT_NEEDED there, unless
``aux-capture`` is applied: it goes first.

``-O variable=NAME`` names another variable. Only whole marked lines are added to
``deepseek_v2.py``, no other file is touched.

It can't be applied together with ``remove-aux-capture``, which leaves nothing to gate.
"""

import re
import textwrap

import libcst as cst

from patchkit.recipe import (
    AnchorMissing,
    BadOption,
    Constants,
    Members,
    Method,
    NotNeeded,
    Recipe,
    insert_first,
    reads_attribute,
    setters_of,
    with_method,
)

SWITCH = "AUX_CAPTURE"
NONE = "this release captures no aux hidden states"


class GateAuxCapture(Recipe):
    version = 1
    summary = "put the aux-hidden-state capture behind SGLANG_AUX_CAPTURE"
    releases = "0.5.4.post2 - 0.5.23, and trees with aux-capture; recognised by shape"
    next_step = "0 in its environment variable turns the capture off, at a start"
    after = ("aux-capture",)
    excludes = ("remove-aux-capture",)
    fixes = ("capture-switch[variable]",)
    environment = (
        (
            "SGLANG_AUX_CAPTURE",
            "0, false, no or off: the target captures no aux hidden states, and"
            " EAGLE-3 is refused at the start",
        ),
    )
    options = {
        "variable": ("SGLANG_AUX_CAPTURE", "the name of the environment variable"),
    }
    sites = {
        "model": "no layers to capture while switched off",
        "head": "no aux states unpacked while switched off",
        "setters": "an error at the start while switched off",
        "switch": "the environment variable",
    }
    edits = {
        "srt/models/deepseek_v2.py": (
            Method("model", "DeepseekV2Model", "forward", "gate_model"),
            Members("setters", "DeepseekV2ForCausalLM", "gate_setters"),
            Method("head", "DeepseekV2ForCausalLM", "forward", "gate_head"),
            Constants("switch", "switch"),
        ),
    }

    captures = False

    def check_options(self) -> None:
        self.variable = self.chosen["variable"].strip()
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", self.variable):
            raise BadOption(
                f"variable={self.variable}: give a name of at most 40 letters, digits"
                " and underscores"
            )

    def gate_model(self, function: cst.FunctionDef) -> cst.FunctionDef:
        self.captures = reads_attribute(function, "self.layers_to_capture")
        if not self.captures:
            raise NotNeeded(NONE)
        return self._drop(function, "layers_to_capture = ()")

    def gate_head(self, function: cst.FunctionDef) -> cst.FunctionDef:
        if not self.captures:
            raise NotNeeded(NONE)
        if not reads_attribute(function, "self.capture_aux_hidden_states"):
            raise AnchorMissing(
                "forward does not ask self.capture_aux_hidden_states whether there are"
                " aux states",
                like="if self.capture_aux_hidden_states:",
            )
        return self._drop(function, "capture_aux_hidden_states = False")

    def gate_setters(self, owner: cst.ClassDef) -> cst.ClassDef:
        setters = setters_of(owner)
        if not self.captures:
            raise NotNeeded(NONE)
        if not setters:
            raise AnchorMissing(
                "no setter of layers to capture",
                like="def set_eagle3_layers_to_capture(self, layer_ids):",
            )
        for setter in setters:
            changed = insert_first(setter, lambda depth: self.lines(self._refusal()))
            owner = with_method(owner, setter, changed)
        return owner

    def switch(self) -> list[str]:
        if not self.captures:
            raise NotNeeded(NONE)
        return [
            "import os",
            "",
            "# switched off, the target captures nothing for EAGLE-3",
            f"{SWITCH} = os.environ.get(",
            f'    "{self.variable}",',
            '    "1",',
            ').strip().lower() not in ("0", "false", "no", "off")',
        ]

    def _drop(self, function: cst.FunctionDef, what: str) -> cst.FunctionDef:
        return insert_first(
            function,
            lambda depth: self.lines([f"if not {SWITCH}:", f"    self.{what}"]),
        )

    def _refusal(self) -> list[str]:
        text = (
            f"{self.variable} is off: the target captures no aux hidden states"
            " (gate-aux-capture). Unset it, or start without the EAGLE-3 draft."
        )
        pieces = textwrap.wrap(text, 38, drop_whitespace=False)
        return [
            f"if not {SWITCH}:",
            "    raise RuntimeError(",
            *(f'        "{piece}"' for piece in pieces),
            "    )",
        ]
