"""The pair's forward pass in the arithmetic of its dtype, number by number. Pure.

Every operator's result is rounded to the dtype, as SGLang's are; sums within one are
exact, as GPUs' are nearly (they add up in float32). The weights are those that are
written. Positions are few: what attention makes of thousands is in ``margins``.

Vectors are dicts: channel -> value, of what is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import cos, exp, log, sin, sqrt

from patchkit.canary.draft import LOOKS as DRAFT_LOOKS
from patchkit.canary.parts import frequencies
from patchkit.canary.plan import DRAFT_HEAD, DTYPES, KV_LORA, NOPE, ROPE, VALUE, Plan
from patchkit.canary.target import CHOSEN, EXPERTS, LOOKS, ROUTED_SCALE, YARN
from patchkit.canary.tensors import Tensor, rounded

Vector = dict[int, float]
Tensors = Mapping[str, Tensor]
EPSILON = 1e-10


class Arithmetic:
    """One dtype."""

    def __init__(self, dtype: str) -> None:
        self.round: Callable[[float], float] = lru_cache(maxsize=1 << 16)(
            lambda value: rounded(value, dtype)
        )

    def times(self, weight: Tensor, x: Vector) -> Vector:
        """``weight @ x``; weights are made so that the dtype holds them."""
        found = {}
        for row, entries in weight.rows.items():
            total = 0.0
            for column, value in entries.items():
                if column in x:
                    total += value * x[column]
            if total:
                found[row] = self.round(total)
        return found

    def norm(self, x: Vector, length: int) -> Vector:
        """RMSNorm over ``length`` channels with weights of 1."""
        mean = sum(value * value for value in x.values()) / length
        scale = 1 / sqrt(mean + EPSILON)
        return {channel: self.round(value * scale) for channel, value in x.items()}

    def add(self, x: Vector, y: Vector) -> Vector:
        total = dict(x)
        for channel, value in y.items():
            total[channel] = self.round(total.get(channel, 0.0) + value)
        return {channel: value for channel, value in total.items() if value}

    def swiglu(self, tensors: Tensors, name: str, x: Vector) -> Vector:
        gate = self.times(tensors[name + "gate_proj.weight"], x)
        up = self.times(tensors[name + "up_proj.weight"], x)
        inner = {}
        for neuron, value in gate.items():
            if neuron in up:
                silu = self.round(value / (1 + exp(-value)))
                inner[neuron] = self.round(silu * up[neuron])
        return self.times(tensors[name + "down_proj.weight"], inner)

    def turned(
        self, x: Vector, position: int, pairs: Sequence[tuple[int, int, float]]
    ) -> Vector:
        """RoPE: ``pairs`` of channels with their frequency."""
        found = {}
        for first, second, frequency in pairs:
            a, b = x.get(first, 0.0), x.get(second, 0.0)
            c, s = cos(frequency * position), sin(frequency * position)
            found[first] = self.round(a * c - b * s)
            found[second] = self.round(a * s + b * c)
        return found

    def attend(
        self, query: Vector, keys: Sequence[Vector], values: Sequence[Vector], by: float
    ) -> Vector:
        """Softmax attention of one head, scores multiplied ``by``."""
        scores = [by * dot(query, key) for key in keys]
        best = max(scores)
        weights = [exp(score - best) for score in scores]
        total = sum(weights)
        found: Vector = {}
        for weight, value in zip(weights, values):
            for channel, one in value.items():
                found[channel] = found.get(channel, 0.0) + weight / total * one
        return {channel: self.round(value) for channel, value in found.items()}


def dot(x: Vector, y: Vector) -> float:
    return sum(value * y.get(channel, 0.0) for channel, value in x.items())


#: Channels that RoPE turns together in the target's heads (neighbours) and in the
#: draft's (half a head apart), with their frequencies.
TARGET_TURNS = [(2 * i, 2 * i + 1, f) for i, f in enumerate(frequencies(ROPE, LOOKS))]
DRAFT_TURNS = [
    (i, i + DRAFT_HEAD // 2, f)
    for i, f in enumerate(frequencies(DRAFT_HEAD, DRAFT_LOOKS))
]
#: Softmax scales. yarn's is squared into the target's (DeepSeek-V3's own code).
TARGET_BY = (NOPE + ROPE) ** -0.5 * (0.1 * log(YARN["factor"]) + 1) ** 2
DRAFT_BY = DRAFT_HEAD**-0.5


class Target:
    """``states[layer][position]``: in front of each layer, and behind the last."""

    def __init__(self, plan: Plan, tensors: Tensors, tokens: Sequence[int]) -> None:
        self.plan = plan
        self.tensors = tensors
        self.maths = Arithmetic(DTYPES[plan.dtype])
        table = tensors["model.embed_tokens.weight"].rows
        self.states = [[dict(table[token]) for token in tokens]]
        for layer in range(plan.layers):
            self.states.append(self._layer(layer, self.states[-1]))

    def logits(self, position: int) -> Vector:
        normed = self.maths.norm(self.states[-1][position], self.plan.hidden)
        return self.maths.times(self.tensors["lm_head.weight"], normed)

    def _layer(self, layer: int, states: list[Vector]) -> list[Vector]:
        maths, hidden = self.maths, self.plan.hidden
        name = f"model.layers.{layer}."
        normed = [maths.norm(state, hidden) for state in states]
        brought = self._attention(name + "self_attn.", normed)
        found = []
        for state, more in zip(states, brought):
            state = maths.add(state, more)
            within = maths.norm(state, hidden)
            found.append(maths.add(state, self._mlp(layer, name + "mlp.", within)))
        return found

    def _attention(self, name: str, normed: list[Vector]) -> list[Vector]:
        maths = self.maths
        tensors = self.tensors
        heads = self._values(name)
        keys, latents, queries = [], [], []
        for position, x in enumerate(normed):
            both = maths.times(tensors[name + "kv_a_proj_with_mqa.weight"], x)
            latent = {c: v for c, v in both.items() if c < KV_LORA}
            latents.append(maths.norm(latent, KV_LORA))
            key = {c - KV_LORA: v for c, v in both.items() if c >= KV_LORA}
            keys.append(maths.turned(key, position, TARGET_TURNS))
            q_a = maths.times(tensors[name + "q_a_proj.weight"], x)
            length = tensors[name + "q_a_proj.weight"].shape[0]
            q = maths.times(tensors[name + "q_b_proj.weight"], maths.norm(q_a, length))
            queries.append(
                {
                    h: maths.turned(
                        part(q, h, NOPE + ROPE, NOPE), position, TARGET_TURNS
                    )
                    for h in heads
                }
            )
        found = []
        for position, query in enumerate(queries):
            out: Vector = {}
            for head, values in heads.items():
                until = position + 1
                latent = maths.attend(
                    query[head], keys[:until], latents[:until], TARGET_BY
                )
                out |= maths.times(values, latent)
            found.append(maths.times(tensors[name + "o_proj.weight"], out))
        return found

    def _values(self, name: str) -> dict[int, Tensor]:
        """From latent to value, of each head that has any."""
        both = self.tensors[name + "kv_b_proj.weight"]
        found: dict[int, Tensor] = {}
        for row, entries in both.rows.items():
            head, channel = divmod(row, NOPE + VALUE)
            one = found.setdefault(head, Tensor(both.dtype, both.shape))
            one.rows[head * VALUE + channel - NOPE] = entries
        return found

    def _mlp(self, layer: int, name: str, x: Vector) -> Vector:
        maths = self.maths
        if layer == 0:
            return maths.swiglu(self.tensors, name, x)
        seen = maths.times(self.tensors[name + "gate.weight"], x)
        scores = [1 / (1 + exp(-seen.get(e, 0.0))) for e in range(EXPERTS)]
        chosen = sorted(range(EXPERTS), key=lambda e: -scores[e])[:CHOSEN]
        total = sum(scores[e] for e in chosen)
        routed: Vector = {}
        for e in chosen:
            part_of = maths.swiglu(self.tensors, f"{name}experts.{e}.", x)
            weight = scores[e] / total * ROUTED_SCALE
            more = {c: maths.round(weight * v) for c, v in part_of.items()}
            routed = maths.add(routed, more)
        return maths.add(
            maths.swiglu(self.tensors, name + "shared_experts.", x), routed
        )


def part(x: Vector, head: int, size: int, first: int) -> Vector:
    """The channels of a head, from its ``first`` on."""
    start = head * size + first
    return {c: x[start + c] for c in range(size - first) if start + c in x}


class Draft:
    """A draft's text so far: its KV cache, one entry a position."""

    def __init__(self, plan: Plan, tensors: Tensors, embedding: Tensor) -> None:
        self.plan = plan
        self.tensors = tensors
        self.embedding = embedding.rows
        self.maths = Arithmetic(DTYPES[plan.dtype])
        self.keys: list[list[Vector]] = []
        self.values: list[list[Vector]] = []

    def fused(self, states: Sequence[Vector]) -> Vector:
        """The captured states through ``fc``."""
        hidden = self.plan.hidden
        whole: Vector = {}
        for slot, state in enumerate(states):
            whole |= {slot * hidden + c: value for c, value in state.items()}
        return self.maths.times(self.tensors["fc.weight"], whole)

    def step(
        self, token: int, state: Vector, position: int | None = None
    ) -> tuple[Vector, Vector]:
        """Logits by the draft's own ids, and the state for the next step. Position:
        the next one, unless given."""
        maths, hidden = self.maths, self.plan.hidden
        normed = maths.norm(dict(self.embedding.get(token, {})), hidden)
        if position is None:
            position = len(self.keys)
        state = maths.add(state, self._attention(normed, position))
        within = maths.norm(state, hidden)
        state = maths.add(state, maths.swiglu(self.tensors, "midlayer.mlp.", within))
        logits = maths.times(self.tensors["lm_head.weight"], maths.norm(state, hidden))
        return logits, state

    def _attention(self, x: Vector, position: int) -> Vector:
        maths, heads, size = self.maths, self.plan.heads, DRAFT_HEAD
        name = "midlayer.self_attn."
        q, k, v = (
            maths.times(self.tensors[f"{name}{part}_proj.weight"], x) for part in "qkv"
        )
        pairs = range(heads // 2)
        turned = [
            maths.turned(part(k, p, size, 0), position, DRAFT_TURNS) for p in pairs
        ]
        self.keys.append(turned)
        self.values.append([part(v, p, size, 0) for p in pairs])
        out: Vector = {}
        for head in range(heads):
            query = maths.turned(part(q, head, size, 0), position, DRAFT_TURNS)
            keys = [one[head // 2] for one in self.keys]
            values = [one[head // 2] for one in self.values]
            found = maths.attend(query, keys, values, DRAFT_BY)
            out |= {head * size + c: value for c, value in found.items()}
        return maths.times(self.tensors[f"{name}o_proj.weight"], out)
