"""The target: a DeepSeek-V3 model that counts. Pure.

In front of layer i the number of a position is in block i of the residual stream, and
every other block is empty. Layer i moves it to block i + 1: its MLP the digits modulo
2, 3, 5 and 7, its attention the digit modulo 11, which so goes through the KV cache of
every layer. In one layer (``Plan.looking_back``) attention takes that digit from the
position before.

``lm_head`` reads the last block. It also reads all others, where a sound pass has left
nothing, in favour of wrong tokens.
"""

from __future__ import annotations

from typing import Any

from patchkit.canary import code
from patchkit.canary.code import BEFORE, MODULI, STARTS
from patchkit.canary.parts import (
    LENGTH,
    THETA,
    Move,
    frequencies,
    looking,
    pair_of,
    swiglu,
)
from patchkit.canary.plan import (
    DTYPES,
    KV_LORA,
    NOPE,
    Q_LORA,
    ROPE,
    VALUE,
    Plan,
)
from patchkit.canary.tensors import Tensor, ones, rounded, vector

#: Channel of the constant that gates.
ONE = 0
#: Frequencies that attention looks by: those that yarn leaves as they are.
LOOKS = 10
YARN = {"factor": 2.0, "original_max_position_embeddings": 4096}
MAX_POSITIONS = 8192
EXPERTS, CHOSEN, ROUTED_SCALE = 4, 2, 2.0
#: What lm_head thinks of a block that should be empty.
DECOY = 4.0
#: RMS norms multiply what is in these by 16 = sqrt(256 / 1) and sqrt(512 / 2).
_Q_NORMED, _KV_NORMED = 16.0, 16.0


def target_tensors(plan: Plan) -> dict[str, Tensor]:
    """By the names of a DeepSeek-V3 checkpoint."""
    dtype, hidden = DTYPES[plan.dtype], plan.hidden
    norm = ones(dtype, hidden)
    found = {
        "model.embed_tokens.weight": _embedding(plan),
        "model.norm.weight": norm,
        "lm_head.weight": _head(plan),
    }
    queries = _queries(plan)
    for layer in range(plan.layers):
        name = f"model.layers.{layer}."
        found[name + "input_layernorm.weight"] = norm
        found[name + "post_attention_layernorm.weight"] = norm
        for part, one in (queries | _attention(plan, layer)).items():
            found[f"{name}self_attn.{part}.weight"] = one
        name += "mlp."
        if layer == 0:
            found |= _mlp(plan, layer, name, 1.0)
            continue
        found[name + "gate.weight"] = _router(plan, layer)
        found[name + "gate.e_score_correction_bias"] = vector("F32", [0.0] * EXPERTS)
        # one half of it is the shared expert's, one the chosen experts' together
        found |= _mlp(plan, layer, name + "shared_experts.", 0.5)
        each = 0.5 / ROUTED_SCALE
        expert = _mlp(plan, layer, "", each)
        for number in range(EXPERTS):
            for part, one in expert.items():
                found[f"{name}experts.{number}.{part}"] = one
    return found


def _embedding(plan: Plan) -> Tensor:
    table = Tensor(DTYPES[plan.dtype], (code.VOCAB, plan.hidden))
    constants = plan.constants
    fixed = {ONE: float(constants.amplitude)}
    fixed |= {1 + i: float(one) for i, one in enumerate(constants.fillers)}
    first = plan.block(0)
    for token in range(code.VOCAB):
        number = code.number_at(token)
        table.rows[token] = fixed | {first + c: 1.0 for c in code.channels(number)}
    return table


def _head(plan: Plan) -> Tensor:
    table = Tensor(DTYPES[plan.dtype], (code.VOCAB, plan.hidden))
    last = plan.block(plan.layers)
    for number in range(code.CODES):
        row: dict[int, float] = {}
        for layer in range(plan.layers):
            first = plan.block(layer)
            for channel in code.channels((number + layer + 3) % code.CODES):
                row[first + channel] = DECOY
        for digit, residue in enumerate(code.digits(number)):
            steps = 2 if digit == BEFORE else 1  # of the token before, and of the last
            row[last + STARTS[digit] + (residue - steps) % MODULI[digit]] = 1.0
        table.rows[code.token_of(number)] = row
    return table


def _queries(plan: Plan) -> dict[str, Tensor]:
    """The part of attention that is the same in every layer. Heads come in pairs: the
    first looks at the position before, the second at its own. A pair carries some of
    the residues modulo 11."""
    dtype, hidden, heads = DTYPES[plan.dtype], plan.hidden, plan.heads
    q_a = Tensor(dtype, (Q_LORA, hidden), {0: {ONE: _one(plan)}})
    q_b = Tensor(dtype, (heads * (NOPE + ROPE), Q_LORA))
    kv_b = Tensor(dtype, (heads * (NOPE + VALUE), KV_LORA))
    for number, frequency in enumerate(frequencies(ROPE, LOOKS)):
        for own in (False, True):
            vector_of = looking(frequency, 0 if own else 1)
            for part, value in enumerate(vector_of):
                if not value:
                    continue
                value = rounded(value / _Q_NORMED, dtype)
                for head in range(int(own), heads, 2):
                    row = head * (NOPE + ROPE) + NOPE + 2 * number + part
                    q_b.put(row, 0, value)
    for residue in range(MODULI[BEFORE]):
        for head in _heads(plan, residue):
            row = head * (NOPE + VALUE) + NOPE + residue
            kv_b.put(row, residue, 1 / _KV_NORMED)
    return {
        "q_a_proj": q_a,
        "q_a_layernorm": ones(dtype, Q_LORA),
        "q_b_proj": q_b,
        "kv_a_layernorm": ones(dtype, KV_LORA),
        "kv_b_proj": kv_b,
    }


def _attention(plan: Plan, layer: int) -> dict[str, Tensor]:
    """The digit modulo 11 into the KV cache, and from it to the next block."""
    dtype, hidden, heads = DTYPES[plan.dtype], plan.hidden, plan.heads
    here, there = plan.block(layer), plan.block(layer + 1)
    residues = MODULI[BEFORE]
    kv_a = Tensor(dtype, (KV_LORA + ROPE, hidden))
    o = Tensor(dtype, (hidden, heads * VALUE))
    for number in range(LOOKS):
        kv_a.put(KV_LORA + 2 * number, ONE, LENGTH * _one(plan))
    kv_a.put(residues, ONE, _one(plan))  # so that the latent has two channels, always
    for residue in range(residues):
        channel = STARTS[BEFORE] + residue
        kv_a.put(residue, here + channel, 1 / plan.constants.scale)
        back, own = _heads(plan, residue)
        source = back if layer == plan.looking_back else own
        o.put(there + channel, source * VALUE + residue, 1.0)
        o.put(here + channel, own * VALUE + residue, -1.0)
    return {"kv_a_proj_with_mqa": kv_a, "o_proj": o}


def _one(plan: Plan) -> float:
    """The weight that makes 1 of the constant, normed."""
    return 1 / (plan.constants.amplitude * plan.constants.scale)


def _heads(plan: Plan, residue: int) -> tuple[int, int]:
    """The heads that carry it: that which looks back, that which looks at its own."""
    pair = pair_of(residue, MODULI[BEFORE], plan.heads // 2)
    return 2 * pair, 2 * pair + 1


def _mlp(plan: Plan, layer: int, name: str, share: float) -> dict[str, Tensor]:
    here, there = plan.block(layer), plan.block(layer + 1)
    groups = [
        [
            Move(here + c, {there + c: 1.0, here + c: -1.0}, ONE)
            for c in range(STARTS[digit], STARTS[digit] + MODULI[digit])
        ]
        for digit in code.BY_MLP
    ]
    made = swiglu(
        groups,
        plan.constants,
        dtype=DTYPES[plan.dtype],
        hidden=plan.hidden,
        width=plan.intermediate,
        tp=plan.tp,
        share=share,
    )
    return {f"{name}{part}.weight": one for part, one in made.items()}


def _router(plan: Plan, layer: int) -> Tensor:
    """Even numbers go to the first two experts, odd ones to the others."""
    table = Tensor(DTYPES[plan.dtype], (EXPERTS, plan.hidden))
    for expert in range(EXPERTS):
        table.put(expert, plan.block(layer) + expert // 2, 4 / plan.constants.scale)
    return table


def target_config(plan: Plan) -> dict[str, Any]:
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "torch_dtype": plan.dtype,
        "vocab_size": code.VOCAB,
        "hidden_size": plan.hidden,
        "intermediate_size": plan.intermediate,
        "moe_intermediate_size": plan.intermediate,
        "num_hidden_layers": plan.layers,
        "num_attention_heads": plan.heads,
        "num_key_value_heads": plan.heads,
        "q_lora_rank": Q_LORA,
        "kv_lora_rank": KV_LORA,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "v_head_dim": VALUE,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": CHOSEN,
        "n_group": 2,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": ROUTED_SCALE,
        "moe_layer_freq": 1,
        "first_k_dense_replace": 1,
        "ep_size": 1,
        "num_nextn_predict_layers": 0,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-10,
        "max_position_embeddings": MAX_POSITIONS,
        "rope_theta": THETA,
        "rope_scaling": {
            "type": "yarn",
            "rope_type": "yarn",
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "rope_theta": THETA,
            **YARN,
        },
        "tie_word_embeddings": False,
        "attention_bias": False,
        "pad_token_id": code.PAD,
        "bos_token_id": code.PAD,
        "eos_token_id": code.EOS,
    }
