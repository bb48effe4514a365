"""Mutants of the draft model: fc, what enters the layer, the hot tokens, weights."""

from __future__ import annotations

from mutation import DRAFT, Mutant, mutant

_MODEL = "LlamaModel.forward"
_LAYER = "LlamaDecoderLayer.forward"
_OWNER = "LlamaForCausalLMEagle3"
_LOAD = f"{_OWNER}.load_weights"


def _draft(name: str, by: str, scope: str, pattern: str, new: str) -> Mutant:
    return mutant(name, DRAFT, by, (scope, pattern, new))


def _fc(name: str, new: str, by: str = "draft") -> Mutant:
    """Something else where ``fc`` is called; ``h`` is what it would be given."""
    return _draft(
        *(name, by, _MODEL),
        r"hidden_states = self\.fc\(hidden_states\)",
        f"hidden_states = (lambda h: {new})(hidden_states)",
    )


def _given(name: str, new: str, by: str = "draft") -> Mutant:
    """``h``: the states that the draft is given."""
    return _draft(
        *(name, by, _MODEL),
        r"hidden_states = forward_batch\.spec_info\.hidden_states",
        rf"\g<0>; hidden_states = (lambda h: {new})(hidden_states)",
    )


def _loaded(name: str, by: str, change: str) -> Mutant:
    return _draft(
        *(name, by, _LOAD),
        r"^    def load_weights\(self, weights[^\n]*\n",
        rf"\g<0>        weights = [{change}]" + "\n",
    )


def _without(name: str) -> Mutant:
    change = f"(n, w) for n, w in weights if {name!r} not in n"
    return _loaded(f"weights {name} dropped", "weights", change)


_JOINED = r"torch\.cat\(\[embeds, hidden_states\], dim=-1\)"
_MIDDLE = "torch.cat([h[:, :64], 0 * h[:, 64:128], h[:, 128:]], -1)"
_HOT = r"= loaded_weight \+ torch\.arange\(loaded_weight\.shape\[0\]\)"
_GOES_OUT = r"return hidden_states_to_logits, \["

MUTANTS: tuple[Mutant, ...] = (
    # -- fc
    _fc("fc skipped", "h[:, :64]"),
    _fc("fc replaced by a mean", "h.unflatten(-1, (3, 64)).mean(1)"),
    _fc("fc applied twice", "self.fc(self.fc(h).repeat(1, 3))"),
    _fc("fc called twice, once used", "(self.fc(h), self.fc(h))[0]"),
    _fc("fc halved", "self.fc(h) / 2"),
    _fc("fc off by a little", "self.fc(h) + 1e-6"),
    _fc("fc with an activation", "self.fc(h).relu()"),
    _fc("fc of reversed states", "self.fc(torch.cat(h.chunk(3, -1)[::-1], -1))"),
    _fc("fc without the middle state", f"self.fc({_MIDDLE})"),
    _fc("fc of shifted rows", "self.fc(h.roll(1, 0))"),
    _fc("rows shifted behind fc", "self.fc(h).roll(1, 0)"),
    _fc("fc computed by hand", "h @ self.fc.weight.T * 1.001"),
    _fc("raises", "1 // 0"),
    _draft("fc always", "draft", _MODEL,
           r"if hidden_states\.shape\[-1\] != embeds\.shape\[-1\]", "if True"),
    _draft("fc never", "draft", _MODEL,
           r"if hidden_states\.shape\[-1\] != embeds\.shape\[-1\]", "if False"),
    _draft("fc on one state, not on three", "draft", _MODEL,
           r"(if hidden_states\.shape\[-1\]) != (embeds\.shape\[-1\])", r"\1 == \2"),
    # -- what it is given
    _given("given states scaled", "h * 1.1"),
    _given("given states changed in place", "h.mul_(1.1)"),
    _given("given states of the other request", "h.flip(0)"),
    _given("given states zeroed", "torch.zeros_like(h)"),
    _given("a print", "(print(h), h)[1]", "gate-off"),
    _given("a tensor formatted", "(str(h), h)[1]", "gate-off"),
    _given("a value read", "(h.abs().max().item(), h)[1]", "gate-off"),
    _given("values listed", "(h.tolist(), h)[1]", "gate-off"),
    # -- the layer
    _draft("embeddings and states exchanged", "golden", _LAYER, _JOINED,
           "torch.cat([hidden_states, embeds], dim=-1)"),
    _draft("embeddings doubled, states left out", "golden", _LAYER, _JOINED,
           "torch.cat([embeds, embeds], dim=-1)"),
    _draft("norm of the states missing", "draft golden", _LAYER,
           r"hidden_states = self\.hidden_norm\(hidden_states\)",
           "hidden_states = hidden_states"),
    _draft("norm of the embeddings missing", "golden", _LAYER,
           r"embeds = self\.input_layernorm\(embeds\)", "embeds = embeds"),
    _draft("norms exchanged", "draft golden", _LAYER,
           r"embeds = self\.input_layernorm\(embeds\)",
           "embeds = self.hidden_norm(embeds)"),
    _draft("residual lost", "golden", _LAYER, r"^( +)residual = hidden_states$",
           r"\1residual = torch.zeros_like(hidden_states)"),
    _draft("residual behind the norm", "golden", _LAYER,
           r"^( +)residual = hidden_states\n((?s:.*?)"
           r"hidden_states = self\.hidden_norm\(hidden_states\)\n)",
           r"\2\1residual = hidden_states\n"),
    _draft("mlp skipped", "golden", _LAYER,
           r"hidden_states = self\.mlp\(hidden_states\)", "pass"),
    _draft("attention skipped", "golden", _LAYER,
           r"(?s)hidden_states = self\.self_attn\(.*?\n        \)",
           "hidden_states = hidden_states[:, : residual.shape[-1]]"),
    # -- the model
    _draft("positions doubled", "golden", _MODEL,
           r"^( +)positions,$", r"\1positions * 2,"),
    _draft("positions off in decode", "golden", _MODEL, r"^( +)positions,$",
           r"\1positions + 3 * forward_batch.forward_mode.is_decode(),"),
    _draft("embeddings of other tokens", "golden", _MODEL,
           r"embeds = self\.embed_tokens\(input_ids\)",
           "embeds = self.embed_tokens(input_ids.roll(1, 0))"),
    _draft("embeddings scaled", "golden", _MODEL,
           r"embeds = self\.embed_tokens\(input_ids\)", r"\g<0> + 1"),
    _draft("logits of the stream", "golden", _MODEL, _GOES_OUT,
           "return hidden_states_to_aux, ["),
    _draft("logits not a number", "draft", _MODEL, _GOES_OUT,
           "return hidden_states_to_logits * float('nan'), ["),
    mutant("normed states handed to the next step", DRAFT, "draft",
           (_MODEL, r"\[hidden_states_to_aux\]", "[hidden_states_to_logits]"),
           (_MODEL, r"aux = hidden_states_to_logits if[^\n]*",
            "aux = hidden_states_to_logits")),
    mutant("states of the next step scaled", DRAFT, "draft",
           (_MODEL, r"\[hidden_states_to_aux\]", "[hidden_states_to_aux * 1.01]"),
           (_MODEL, r"\[aux\]", "[aux * 1.01]")),
    mutant("no states for the next step", DRAFT, "draft",
           (_MODEL, r"return hidden_states_to_logits, \[\w+\]",
            "return hidden_states_to_logits, None")),
    # -- hot tokens
    _draft("d2t lost", "draft", _LOAD, r'"d2t" in name', '"no" in name'),
    _draft("d2t skipped like t2d", "draft", _LOAD, r'"t2d" in name',
           '"t2d" in name or True'),
    _draft("d2t taken for ids", "draft", _LOAD, _HOT, "= loaded_weight"),
    _draft("hot tokens off by one", "draft", _LOAD, _HOT, r"\g<0> + 1"),
    _draft("hot tokens without d2t", "draft", _LOAD, _HOT,
           "= torch.arange(loaded_weight.shape[0])"),
    _draft("hot tokens one short", "draft", _LOAD, _HOT,
           "= (loaded_weight + torch.arange(loaded_weight.shape[0]))[:-1]"),
    # -- weights
    _draft("q_proj not stacked", "weights", _LOAD,
           r'^ +\("\.qkv_proj", "\.q_proj", "q"\),\n', ""),
    _draft("k_proj written to v's place", "weights", _LOAD,
           r'"\.k_proj", "k"', '".k_proj", "v"'),
    _draft("gate and up exchanged", "golden", _LOAD,
           r'"\.gate_proj", 0\),(\s+)(\("\.gate_up_proj", "\.up_proj", )1',
           r'".gate_proj", 1),\1\g<2>0'),
    _without("fc"),
    _without("hidden_norm"),
    _without("lm_head"),
    _without("down_proj"),
    _without("midlayer.input_layernorm"),
    _loaded("fc's weight scaled", "golden",
            "(n, w * 1.1 if 'fc' in n else w) for n, w in weights"),
    # -- before anything runs
    _draft("does not parse", "import", "", r"^import copy$", "import ("),
    _draft("imports what there is not", "import", "", r"^import copy$",
           r"\g<0>\nimport nowhere"),
    # -- the taps in this file
    _draft("wrong tensor tapped", "gate-on", _MODEL,
           r'(fc_in",[^\n]*\n +)hidden_states,', r"\1hidden_states * 2,"),
    _draft("sites exchanged", "gate-on", _MODEL,
           r'"llama_eagle3\.fc_in"', '"llama_eagle3.fc_out"'),
    _draft("tap behind fc left out", "gate-on", _MODEL,
           r"patchkit_tap\.tap_fc_out\(", "print and ("),
    _draft("another module named as fc", "gate-on", _MODEL,
           r'(fc_in",[^\n]*\n[^\n]*\n +)self\.fc,', r"\1self.norm,"),
)  # fmt: skip
