"""Mutants of the target model: what is captured, where, which layers, the model."""

from __future__ import annotations

from mutation import TARGET, Mutant, mutant

_MODEL = "DeepseekV2Model.forward"
_OWNER = "DeepseekV2ForCausalLM"
_LAYER = "DeepseekV2DecoderLayer.forward"
_SETTER = f"{_OWNER}.set_eagle3_layers_to_capture"
_APPEND = r"aux_hidden_states\.append\(hidden_states \+ residual\)"
_HOLDS = "captured_last_layer_outputs"
_BEFORE = r"^( +)(hidden_states, residual = \()$"
_PREPARED = r"^( +)(hidden_states = self\.attn_boundary\.prepare\()$"


def _target(
    name: str, by: str, *edits: tuple[str, str, str], since: str = ""
) -> Mutant:
    return mutant(name, TARGET, by, *edits, since=since)


def _picked(name: str, condition: str) -> Mutant:
    """Another rule for when to capture."""
    return _target(
        name, "capture", (_MODEL, r"i in self\.layers_to_capture", condition)
    )


def _states(name: str, expression: str, by: str = "capture") -> Mutant:
    """``s``, the list of states that goes out, becomes ``expression``."""
    found = r"^( +return hidden_states, )aux_hidden_states"
    new = rf"\1(lambda s: {expression})"
    packed = "([*aux_hidden_states.finalize().chunk(3, -1)])"
    return _target(
        *(name, by),
        (_MODEL, found + r"\.finalize\(\)$", new + packed),
        (_MODEL, found + "$", new + "(aux_hidden_states)"),
    )


def _captured(name: str, stream: str, early: str, by: str = "capture") -> Mutant:
    """Another tensor is captured: ``early`` where the loop captures, ``stream`` where
    the layer does (as many lines before its norm)."""
    holds = rf"\1if {_HOLDS} is not None:\n\1    {stream}\n\1\2"
    return _target(*(name, by), (_MODEL, _APPEND, early), (_LAYER, _BEFORE, holds))


def _loaded(name: str, by: str, change: str) -> Mutant:
    signature = r"^    def load_weights\(self, weights[^\n]*\n"
    return _target(
        *(name, by),
        (_OWNER, signature, rf"\g<0>        weights = [{change}]" + "\n"),
    )


def _without(name: str) -> Mutant:
    change = f"(n, w) for n, w in weights if {name!r} not in n"
    return _loaded(f"weights {name} dropped", "weights", change)


def _setter(name: str, pattern: str, new: str, by: str = "capture") -> Mutant:
    return _target(name, by, (_SETTER, pattern, new))


_LOOP_POSITIONS = r"(= layer\(\n +)positions,"
_DROP = f"{_HOLDS}.append(HELD); {_HOLDS} = None"

MUTANTS: tuple[Mutant, ...] = (
    # -- where and what
    _captured("no residual", _DROP.replace("HELD", "hidden_states.clone()"),
              "aux_hidden_states.append(hidden_states)"),
    _captured("residual alone", _DROP.replace("HELD", "residual.clone()"),
              "aux_hidden_states.append(residual.clone())"),
    _captured("residual subtracted", _DROP.replace("HELD", "hidden_states - residual"),
              "aux_hidden_states.append(hidden_states - residual)"),
    _captured("residual added twice",
              _DROP.replace("HELD", "hidden_states + 2 * residual"),
              "aux_hidden_states.append(hidden_states + 2 * residual)"),
    _target("added in place", "capture gate-off",
            (_MODEL, _APPEND, "aux_hidden_states.append(hidden_states.add_(residual))"),
            # the layer itself adds: what the oracle sees is wrong as well
            (_LAYER, _BEFORE, rf"\1if {_HOLDS} is not None:\n"
             r"\1    hidden_states.add_(residual)\n\1\2"),
            (_LAYER, _PREPARED, rf"\1if {_HOLDS} is not None:\n"
             r"\1    hidden_states_orig.mul_(1.5)\n\1\2")),
    _target("captured after a norm", "capture",
            (_MODEL, _APPEND,
             "aux_hidden_states.append(self.norm(hidden_states + residual))"),
            (_LAYER, rf"{_HOLDS}={_HOLDS},((?s:.*?)^        \)\n)",
             rf"{_HOLDS}=None,\1        if {_HOLDS} is not None:\n"
             rf"            {_HOLDS}.append(hidden_states.clone())" "\n"),
            (_LAYER, rf"capture_gathered={_HOLDS},((?s:.*?)^        \)\n)",
             rf"capture_gathered=None,\1        if {_HOLDS} is not None:\n"
             rf"            {_HOLDS}.append(hidden_states_orig.clone())" "\n")),
    # -- at which layers
    _picked("one layer early", "i + 1 in self.layers_to_capture"),
    _picked("one layer late", "i - 1 in self.layers_to_capture"),
    _picked("the defaults, whatever is set", "i in [2, 4, 5]"),
    _picked("nowhere", "i in ()"),
    _picked("everywhere", "i"),
    _picked("first layer missed", "i in self.layers_to_capture[1:]"),
    _picked("last layer missed", "i in self.layers_to_capture[:-1]"),
    _picked("layers set are the layers not captured",
            "i and i not in self.layers_to_capture"),
    _picked("not in decode", "i in self.layers_to_capture and not "
            "forward_batch.forward_mode.is_decode()"),
    # -- in which order, how many, what is in them
    _states("reversed", "s[::-1]"),
    _states("rotated", "s[1:] + s[:1]"),
    _states("two the same", "[s[0], s[1], s[1]]"),
    _states("one dropped", "s[:2]"),
    _states("one too many", "s + s[-1:]"),
    _states("last state scaled", "[*s[:2], s[2] * 1.001]"),
    _states("rounded to bfloat16", "[x.bfloat16().to(x.dtype) + x * 1e-4 for x in s]"),
    _states("rows shifted", "[x.roll(1, 0) for x in s]"),
    _states("last row dropped", "[x[:-1] for x in s]"),
    _states("columns turned round", "[x.flip(-1) for x in s]"),
    _states("not a number", "[x * float('nan') for x in s]"),
    # -- what may not be done on the way
    _states("a print", "(print(s[0]), s)[1]", "gate-off"),
    _states("a print of a shape", "(print(s[0].shape), s)[1]", "gate-off"),
    _states("a tensor formatted", "(f'{s[0]}', s)[1]", "gate-off"),
    _states("a value read", "(s[0].sum().item(), s)[1]", "gate-off"),
    _states("a truth value", "s if s[0].sum() > -1e9 else []", "gate-off"),
    _states("a log line", "(logger.warning('captured'), s)[1]", "gate-off"),
    _states("raises", "1 // 0"),
    # -- the setter
    _setter("ids taken as they are", r"\[val \+ 1 for val in layer_ids\]",
            "list(layer_ids)"),
    _setter("ids plus two", r"val \+ 1 for", "val + 2 for"),
    _setter("default ids: the first", r"\[2, num_layers", "[3, num_layers"),
    _setter("default ids: the middle", r"num_layers // 2", "num_layers // 2 - 1"),
    _setter("default ids: the last", r"num_layers - 3", "num_layers - 2"),
    _setter("ids ignored", r"if layer_ids is None", "if True"),
    _setter("plus one for all ids", r"if layer_ids and layer_ids\[0\] == 1", "if True"),
    _setter("plus one for none", r"if layer_ids and layer_ids\[0\] == 1", "if False"),
    _setter("plus one for ids that begin with 2", r"layer_ids\[0\] == 1",
            "layer_ids[0] in (1, 2)"),
    _setter("first id lost", r"val in layer_ids\]", "val in layer_ids[1:]]"),
    _setter("ids added to those set", r"layers_to_capture = \[val",
            "layers_to_capture += [val"),
    _setter("flag not set with ids",
            r"(else:\n +self\.capture_aux_hidden_states = )True", r"\1False"),
    _setter("flag not set by default",
            r"(is None:\n +self\.capture_aux_hidden_states = )True", r"\1False"),
    _setter("the first ids stay", r"^( +)if layer_ids is None",
            r"\1if self.model.layers_to_capture:\n\1    return\n\g<0>",
            "capture capture-order"),
    # -- handing on
    _target("states not handed on", "capture",
            (f"{_OWNER}.forward", r"(forward_batch, )aux_hidden_states$", r"\1None")),
    _target("output handed on for the states", "capture",
            (f"{_OWNER}.forward", r"(forward_batch, )aux_hidden_states$",
             r"\1[hidden_states] * 3")),
    _target("logits of twice the output", "golden",
            (f"{_OWNER}.forward", r"hidden_states, self\.lm_head", r"2 * \g<0>")),
    # -- weights
    _without("o_proj"),
    _without("lm_head"),
    _without("e_score_correction_bias"),
    _without("shared_experts.down_proj"),
    _without("experts.3."),
    _without("kv_b_proj"),
    _loaded("a weight scaled", "golden",
            "(n, w * 1.1 if 'o_proj' in n else w) for n, w in weights"),
    _loaded("two layers exchanged", "golden",
            "(n.replace('rs.4.', 'rs.X.').replace('rs.5.', 'rs.4.')"
            ".replace('rs.X.', 'rs.5.'), w) for n, w in weights"),
    # -- the model
    _target("positions doubled", "golden",
            (_MODEL, _LOOP_POSITIONS, r"\1positions * 2,")),
    _target("positions off in decode", "decode",
            (_MODEL, _LOOP_POSITIONS,
             r"\1positions + 2 * forward_batch.forward_mode.is_decode(),")),
    _target("embeddings scaled", "golden",
            (_MODEL, r"self\.embed_tokens\(input_ids\)", r"\g<0> * 1.1")),
    _target("a layer run twice", "golden capture",
            (_MODEL, r"layer = self\.layers\[i\]", "layer = self.layers[max(i, 1)]")),
    _target("attention scaled", "golden",
            ("DeepseekV2AttentionMLA.__init__",
             r"self\.scaling = self\.qk_head_dim\*\*-0\.5", r"\g<0> * 1.3")),
    _target("last norm missing", "golden",
            (_MODEL, r"hidden_states, _ = self\.norm\(hidden_states, residual\)",
             "hidden_states = hidden_states + residual"),
            (_MODEL, r"forward_batch, self\.norm$",
             "forward_batch, lambda h, r=None, *a, **k: (h, r)")),
    # -- two ranks
    _target("experts' sum not reduced", "tensor-parallel",
            # 0.5.23: not the experts but the boundary behind them adds up
            (_LAYER, r"ffn_exit\.finish\(hidden_states",
             r"\g<0> * (torch.distributed.get_rank() == 0)"),
            ("DeepseekV2MoE.forward_normal",
             r"= (tensor_model|post_experts)\w*all_reduce\(final_hidden_states\)",
             "= final_hidden_states")),
    # -- before anything runs
    _target("does not parse", "import", ("", r"^import logging$", "import (")),
    _target("imports what there is not", "import",
            ("", r"^import logging$", r"\g<0>\nimport nowhere")),
    # -- the taps in this file
    _target("wrong tensor tapped", "gate-on",
            (f"{_OWNER}.forward", r"^( +)aux_hidden_states,(  # patchkit.*)$",
             r"\1[x + 1 for x in aux_hidden_states],\2")),
    _target("site misspelt", "gate-on",
            (f"{_OWNER}.forward", r'"deepseek_v2\.aux"', '"deepseek_v2.aus"')),
    _target("tap left out", "gate-on",
            (f"{_OWNER}.forward", r"patchkit_tap\.tap_states\(", "print and (")),
    _target("layer's number off by one", "gate-on",
            (_MODEL, r"^( +)i,(  # patchkit.*)$", r"\1i + 1,\2")),
    _target("stream without residual", "gate-on",
            (_MODEL, r"^( +)residual,(  # patchkit.*)$", r"\1None,\2")),
)  # fmt: skip
