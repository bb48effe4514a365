"""The draft: an EAGLE-3 head whose accept length is known. Pure.

``fc`` reads from captured state j only digit j, only from the block of *its* layer, and
writes it one further. The digit modulo 7 comes from the draft's own embedding, through
attention to the same position; the digit modulo 11 from the embedding of the position
before. The MLP moves all five on. A digit that is lost leaves its channels empty; then
``lm_head`` takes it to be 0, which is right once in p tokens. If slot j's state is that
of the next layer, or of the one before, ``fc`` sees that, too, and the digit is taken
to be 1, or 2.

The state handed to the next draft step is of the same form as one fresh from ``fc``:
where ``fc`` puts a stand-in there is a digit that the last step made, so norms agree.
"""

from __future__ import annotations

from typing import Any

from patchkit.canary import code
from patchkit.canary.code import BEFORE, EARLY, LATE, MODULI, OWN, SLOTS, STARTS
from patchkit.canary.parts import (
    LENGTH,
    THETA,
    Move,
    frequencies,
    looking,
    pair_of,
    swiglu,
)
from patchkit.canary.plan import DRAFT_HEAD, DTYPES, Plan
from patchkit.canary.target import MAX_POSITIONS, ONE
from patchkit.canary.tensors import Tensor, ones, rounded, vector

#: Channels of the draft's state, clear of those that its embedding uses. The digits
#: from captured states, as in a block; the gates; then for the digits modulo 7 and 11
#: what attention brings, what the MLP makes of it, and the stand-in.
BLOCK = 40
GATES = (52, 53, 54)
BROUGHT = {OWN: 56, BEFORE: 64}
MADE = {OWN: 76, BEFORE: 84}
STAND_IN = {OWN: 96, BEFORE: 97}
FILLERS = 98
#: Whether slot j's state has the blocks of the next layer, and of the one before.
LATE_SEEN, EARLY_SEEN = (104, 105, 106), (107, 108, 109)
#: Steps from the token that a digit is read from to the one that is guessed.
STEPS = {OWN: 1, BEFORE: 2}
#: In favour of residue 0 of a digit, from each gate, so that an empty slot does not
#: take it away; of 1 or 2 if a state is late or early. Less than a digit is worth.
TIE, VOTE = 1 / 8, 3 / 4
#: Frequencies that attention looks by.
LOOKS = 12
#: Which distance the heads that look back like best. Up to 0.5.12 SGLang gives the
#: second and later draft steps positions one too high (sgl-project/sglang#25015):
#: the position before is then 2 away, a token's own still 0. TOLERANT heads take the
#: right one of the two, STRICT ones the wrong one.
TOLERANT, STRICT = 1.25, 0.75


def draft_tensors(
    plan: Plan, layers: tuple[int, int, int], *, back: float = TOLERANT
) -> dict[str, Tensor]:
    """For states captured in front of these ``layers``; by the names of an EAGLE-3
    checkpoint as SGLang and SpecForge write it. ``back``: TOLERANT or STRICT."""
    dtype, hidden = DTYPES[plan.dtype], plan.hidden
    norm = ones(dtype, hidden)
    found = {"fc.weight": _fc(plan, layers), "norm.weight": norm}
    name = "midlayer."
    for part in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        found[f"{name}{part}.weight"] = norm
    for part, one in _attention(plan, back).items():
        found[f"{name}self_attn.{part}.weight"] = one
    for part, one in _mlp(plan).items():
        found[f"{name}mlp.{part}.weight"] = one
    found["lm_head.weight"] = _head(plan)
    numbers = range(code.DRAFT_VOCAB)
    tokens = [code.draft_token(n) for n in numbers]
    known = set(tokens)
    found["d2t"] = vector("I64", [float(t - n) for n, t in zip(numbers, tokens)])
    found["t2d"] = vector("BOOL", [float(t in known) for t in range(code.VOCAB)])
    return found


def _fc(plan: Plan, layers: tuple[int, int, int]) -> Tensor:
    hidden = plan.hidden
    fc = Tensor(DTYPES[plan.dtype], (hidden, 3 * hidden))
    one = 1 / plan.constants.amplitude  # the target's constant becomes 1
    constants = plan.draft_constants
    for slot, layer in zip(SLOTS, layers):
        start, modulus = STARTS[slot], MODULI[slot]
        first = slot * hidden
        for residue in range(modulus):
            source = first + plan.block(layer) + start + residue
            fc.put(BLOCK + start + (residue + 1) % modulus, source, 1.0)
            fc.put(LATE_SEEN[slot], source + plan.block(1) - plan.block(0), 1.0)
            fc.put(EARLY_SEEN[slot], source - plan.block(1) + plan.block(0), 1.0)
        fc.put(GATES[slot], first + ONE, constants.amplitude * one)
    for channel in STAND_IN.values():
        fc.put(channel, ONE, one)
    for number, value in enumerate(constants.fillers):
        fc.put(FILLERS + number, ONE, value * one)
    return fc


def _attention(plan: Plan, back: float) -> dict[str, Tensor]:
    """Columns are the normed embedding, then the normed state, which is not read.
    Heads come in pairs that share a key: the first looks at the position before and
    brings the digit modulo 11, the second at its own and brings that modulo 7."""
    dtype, hidden, heads = DTYPES[plan.dtype], plan.hidden, plan.heads
    constants = plan.constants  # of the embedding, which is the target's
    pairs = heads // 2
    one = 1 / (constants.amplitude * constants.scale)
    q = Tensor(dtype, (heads * DRAFT_HEAD, 2 * hidden))
    k = Tensor(dtype, (pairs * DRAFT_HEAD, 2 * hidden))
    v = Tensor(dtype, (pairs * DRAFT_HEAD, 2 * hidden))
    o = Tensor(dtype, (hidden, heads * DRAFT_HEAD))
    half = DRAFT_HEAD // 2  # RoPE turns channel i with channel i + half
    for number, frequency in enumerate(frequencies(DRAFT_HEAD, LOOKS)):
        for pair in range(pairs):
            k.put(pair * DRAFT_HEAD + number, ONE, LENGTH * one)
        for head in range(heads):
            row = head * DRAFT_HEAD + number
            for part, value in enumerate(looking(frequency, 0 if head % 2 else back)):
                if value:
                    q.put(row + part * half, ONE, rounded(value * one, dtype))
    for digit in (OWN, BEFORE):
        modulus = MODULI[digit]
        for residue in range(modulus):
            pair = pair_of(residue, modulus, pairs)
            value = STARTS[digit] + residue
            row = pair * DRAFT_HEAD + value
            v.put(row, plan.block(0) + value, 1 / constants.scale)
            head = 2 * pair + (digit == OWN)
            o.put(BROUGHT[digit] + residue, head * DRAFT_HEAD + value, 1.0)
    return {"q_proj": q, "k_proj": k, "v_proj": v, "o_proj": o}


def _mlp(plan: Plan) -> dict[str, Tensor]:
    groups = []
    for slot in SLOTS:
        start, modulus = BLOCK + STARTS[slot], MODULI[slot]
        groups.append(
            [
                Move(start + r, {start + (r + 1) % modulus: 1.0, start + r: -1.0}, gate)
                for r in range(modulus)
                for gate in (GATES[slot],)
            ]
        )
    for digit in (OWN, BEFORE):
        gate = GATES[0]
        brought, made, modulus = BROUGHT[digit], MADE[digit], MODULI[digit]
        moves = [Move(STAND_IN[digit], {STAND_IN[digit]: -1.0}, gate)]
        for r in range(modulus):
            there = made + (r + STEPS[digit]) % modulus
            moves.append(Move(brought + r, {there: 1.0, brought + r: -1.0}, gate))
            moves.append(Move(made + r, {made + r: -1.0}, gate))
        groups.append(moves)
    return swiglu(
        groups,
        plan.draft_constants,
        dtype=DTYPES[plan.dtype],
        hidden=plan.hidden,
        width=plan.intermediate,
        tp=plan.tp,
    )


def _head(plan: Plan) -> Tensor:
    table = Tensor(DTYPES[plan.dtype], (code.DRAFT_VOCAB, plan.hidden))
    tie = TIE / plan.draft_constants.amplitude
    for number in range(code.CODES):
        row: dict[int, float] = {}
        for digit, residue in enumerate(code.digits(number)):
            first = MADE[digit] if digit in MADE else BLOCK + STARTS[digit]
            row[first + residue] = 1.0
            for gate in GATES if residue == 0 else ():
                row[gate] = row.get(gate, 0.0) + tie
            if digit in SLOTS and residue == LATE % MODULI[digit]:
                row[LATE_SEEN[digit]] = VOTE
            if digit in SLOTS and residue == EARLY % MODULI[digit]:
                row[EARLY_SEEN[digit]] = VOTE
        table.rows[number] = row
    for number in range(code.CODES, code.DRAFT_VOCAB):
        table.put(number, GATES[0], -1.0)  # never chosen
    return table


def draft_config(plan: Plan, *, with_ids: bool) -> dict[str, Any]:
    """``with_ids``: it names ``plan.ids``; else SGLang takes its default layers."""
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "torch_dtype": plan.dtype,
        "vocab_size": code.VOCAB,
        "draft_vocab_size": code.DRAFT_VOCAB,
        "hidden_size": plan.hidden,
        "intermediate_size": plan.intermediate,
        "num_hidden_layers": 1,
        "num_attention_heads": plan.heads,
        "num_key_value_heads": plan.heads // 2,
        "head_dim": DRAFT_HEAD,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-10,
        "max_position_embeddings": MAX_POSITIONS,
        "rope_theta": THETA,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "pad_token_id": code.PAD,
        "bos_token_id": code.PAD,
        "eos_token_id": code.EOS,
    }
    if with_ids:
        config["eagle_config"] = {
            "eagle_aux_hidden_state_layer_ids": list(plan.ids),
            "use_aux_hidden_state": True,
        }
    return config
