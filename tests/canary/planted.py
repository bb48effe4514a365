"""Planted faults, each with what it was predicted to do before it was first run.

Edits are of SGLang 0.5.9's files, by a piece of a line. Layers are those in front of
which states are captured; the drafts are made for 2, 4, 5 (``draft``) and 2, 4, 7
(``draft-ids``, of ids 1, 3, 6) of eight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forms import NOTHING, Cycle, Ends, Form, Says, Taken, Target, Wrong

from patchkit.canary import code
from patchkit.canary.draft import draft_tensors
from patchkit.canary.faults import taken_for
from patchkit.canary.plan import Plan
from patchkit.canary.tensors import Tensor

Json = dict[str, Any]
Weights = dict[str, Tensor]
Change = Callable[[Plan, Json, Weights], None]

TARGET, LOGITS, DRAFT = (
    "srt/models/deepseek_v2.py",
    "srt/layers/logits_processor.py",
    "srt/models/llama_eagle3.py",
)
WORKER, INFO = "srt/speculative/eagle_worker.py", "srt/speculative/eagle_info.py"


@dataclass(frozen=True)
class Planted:
    """``edits``: file -> pieces of text and what stands for each. ``target_change`` and
    ``draft_change`` edit a checkpoint before it is written. ``shared``: with what it
    shares its number, and how it is told from that."""

    what: str
    where: str
    form: Form
    edits: Mapping[str, Sequence[tuple[str, str]]] | None = None
    draft: str = "draft"
    target_change: Change | None = None
    draft_change: Change | None = None
    shared: str = ""


def source(
    what: str, file: str, old: str, new: str, form: Form, **more: Any
) -> Planted:
    where = file.rpartition("/")[2]
    return Planted(what, where, form, {file: [(old, new)]}, **more)


def wired(*layers: int, made_for: tuple[int, int, int] = (2, 4, 5)) -> Taken:
    """By the table: a digit whose state is of another layer is taken for 0, or for
    what says a layer early or late."""
    return Taken(
        {
            slot: taken_for(slot, got - wanted)
            for slot, (got, wanted) in enumerate(zip(layers, made_for))
            if got != wanted
        }
    )


# -- which layers ---------------------------------------------------------------------

_DEFAULT = "= [2, num_layers // 2, num_layers - 3]"
_NAMED = "[val + 1 for val in layer_ids]"
_JOINED = "torch.cat(aux_hidden_states, dim=-1)"
TWO_STATES = "mat1 and mat2 shapes cannot be multiplied"


def default(what: str, layers: str, form: Form, **more: Any) -> Planted:
    return source(what, TARGET, _DEFAULT, f"= [{layers}]", form, **more)


def named(what: str, layers: str, form: Form, **more: Any) -> Planted:
    return source(what, TARGET, _NAMED, layers, form, draft="draft-ids", **more)


def joined(what: str, states: str, form: Form, **more: Any) -> Planted:
    new = f"torch.cat([{states}], dim=-1)"
    return source(what, LOGITS, _JOINED, new, form, **more)


ID_LAYERS = (2, 4, 7)
LAYERS = [
    default("slot 0 a layer early", "1, 4, 5", wired(1, 4, 5)),
    default("slot 0 a layer late", "3, 4, 5", wired(3, 4, 5)),
    default("slot 1 a layer early", "2, 3, 5", wired(2, 3, 5)),
    default("slot 2 a layer late", "2, 4, 6", wired(2, 4, 6)),
    default("slot 2 two layers late", "2, 4, 7", wired(2, 4, 7)),
    default("slot 0 of a far layer, so that all move up", "4, 5, 7", wired(4, 5, 7)),
    default(
        "slot 0 the embedding: layer 0, in front of which there is no residual",
        "0, 4, 5",
        Ends("NoneType"),
    ),
    default("one layer twice: two states arrive", "2, 4, 4", Ends(TWO_STATES)),
    default("a layer that there is not: two states", "2, 4, 8", Ends(TWO_STATES)),
    default(
        "default layers out of order: harmless, SGLang captures in layer order",
        "5, 4, 2",
        Taken(),
    ),
    default("nothing captured", "", Ends("unpack")),
    named("ids without plus one", "list(layer_ids)",
          wired(1, 3, 6, made_for=ID_LAYERS)),
    named("ids plus two: the last is no layer", "[v + 2 for v in layer_ids]",
          Ends(TWO_STATES)),
    named("ids ignored", "[2, 4, 5]", wired(2, 4, 5, made_for=ID_LAYERS)),
    source("captured behind the layer, not in front", TARGET,
           "if i in self.layers_to_capture", "if i - 1 in self.layers_to_capture",
           wired(3, 5, 6)),
    source("captured a layer early", TARGET,
           "if i in self.layers_to_capture", "if i + 1 in self.layers_to_capture",
           wired(1, 3, 4)),
]  # fmt: skip

# -- what is captured -----------------------------------------------------------------

_SUM = "aux_hidden_states.append(hidden_states + residual)"
STATES = [
    source("the residual is missing", TARGET, _SUM,
           "aux_hidden_states.append(hidden_states.clone())", NOTHING,
           shared="other 1.0: every digit of slots 0 to 2 is one behind"),
    source("the residual alone", TARGET, _SUM,
           "aux_hidden_states.append(residual.clone())", wired(1, 3, 4),
           shared="a layer early, all three: the norms that taps say"),
    source("newest state first", TARGET, _SUM,
           "aux_hidden_states.insert(0, hidden_states + residual)", wired(5, 4, 2)),
    source("states of the same object: each is the last", TARGET,
           "return hidden_states, aux_hidden_states",
           "return hidden_states, [aux_hidden_states[-1]] * len(aux_hidden_states)",
           wired(5, 5, 5)),
    joined("joined in reverse", "*aux_hidden_states[::-1]", wired(5, 4, 2),
           shared="newest state first, in the model: taps of both files"),
    joined("slots 0 and 1 swapped",
           "aux_hidden_states[1], aux_hidden_states[0], aux_hidden_states[2]",
           wired(4, 2, 5)),
    joined("slots 1 and 2 swapped",
           "aux_hidden_states[0], aux_hidden_states[2], aux_hidden_states[1]",
           wired(2, 5, 4)),
    joined("slots rotated", "*aux_hidden_states[1:], aux_hidden_states[0]",
           wired(4, 5, 2)),
    joined("the first state three times", "*[aux_hidden_states[0]] * 3",
           wired(2, 2, 2)),
    joined("one state left out", "*aux_hidden_states[:2]", Ends(TWO_STATES)),
    joined("one state only: as wide as the draft, so that fc is skipped",
           "aux_hidden_states[-1]", NOTHING, shared="other 1.0: taps say fc skipped"),
    joined("slot 1 is zeros",
           "aux_hidden_states[0], aux_hidden_states[1] * 0, aux_hidden_states[2]",
           wired(2, -9, 5), shared="another layer's state in slot 1: its norm"),
    source("the normed last state instead", LOGITS,
           "hidden_states_to_store = aux_hidden_states",
           "hidden_states_to_store = hidden_states", NOTHING,
           shared="one state only: taps of both files"),
]  # fmt: skip

# -- the draft's forward --------------------------------------------------------------

_OWN_LOST = Taken({code.OWN: 0, code.BEFORE: 0})
FORWARD = [
    source("fc on every step", DRAFT,
           "if hidden_states.shape[-1] != embeds.shape[-1]:", "if True:",
           Ends(TWO_STATES)),
    source("fc never", DRAFT,
           "if hidden_states.shape[-1] != embeds.shape[-1]:", "if False:",
           Ends("")),
    source("embedding and state swapped", DRAFT,
           "torch.cat([embeds, hidden_states], dim=-1)",
           "torch.cat([hidden_states, embeds], dim=-1)", _OWN_LOST,
           shared="attention adds nothing; embedding empty"),
    source("attention adds nothing", DRAFT,
           "self.post_attention_layernorm(hidden_states, residual)",
           "self.post_attention_layernorm(hidden_states * 0, residual)", _OWN_LOST,
           shared="embedding empty: its norm"),
    source("the embedding is the residual", DRAFT, "residual = hidden_states\n",
           "residual = embeds\n", NOTHING, shared="other 1.0"),
    source("every position is 0", DRAFT, "positions=positions,",
           "positions=positions * 0,", Wrong((code.OWN, code.BEFORE))),
    source("every position is one too high: RoPE sees distances only", DRAFT,
           "positions=positions,", "positions=positions + 1,", Taken()),
    source("the normed state is handed on", DRAFT,
           "return hidden_states_to_logits, [hidden_states_to_aux]",
           "return hidden_states_to_logits, [hidden_states_to_logits]", Cycle((1,)),
           shared="second draft step at a wrong position: the norm of what enters it"),
    source("the MLP adds nothing", DRAFT, "hidden_states = self.mlp(hidden_states)",
           "hidden_states = self.mlp(hidden_states) * 0", NOTHING,
           shared="other 1.0: digits one behind"),
    source("the map d2t is not read", DRAFT,
           "self.hot_token_id = loaded_weight + torch.arange(loaded_weight.shape[0])",
           "pass", NOTHING, shared="other 1.0: candidates stand for no number"),
]  # fmt: skip

# -- the worker -----------------------------------------------------------------------

_HOT = "topk_index = self.hot_token_id[topk_index]"
SPECULATION = [
    source("d2t ignored by the worker", WORKER, _HOT, "pass", NOTHING,
           shared="d2t is not read: patchkit check-draft"),
    source("tokens one off behind d2t", WORKER, _HOT,
           "topk_index = self.hot_token_id[topk_index] + 1", NOTHING,
           shared="d2t ignored: every candidate is even"),
    source("later draft steps get the first state", WORKER,
           "            hidden_states = logits_output.hidden_states\n\n", "\n",
           Cycle((2,))),
    source("later draft steps at positions too high by one more", WORKER,
           "forward_batch.positions.add_(1)", "forward_batch.positions.add_(2)",
           Cycle((1,)),
           shared="the normed state is handed on: draft-positions"),
    source("prefill: the draft embeds each token, not the next", INFO,
           "(input_ids[1:], self.verified_id[i].reshape(1))", "(input_ids,)",
           Cycle((3,), first=(0, 0))),
    source("after a verification: states of the row before", INFO,
           "hidden_states=batch.spec_info.hidden_states[accept_index],",
           "hidden_states=batch.spec_info.hidden_states[(accept_index - 1).clamp(0)],",
           Cycle((3, 0))),
    source("the draft's embedding is empty", WORKER,
           "self.draft_model_runner.model.set_embed(embed)",
           "self.draft_model_runner.model.set_embed(embed * 0)", _OWN_LOST,
           shared="attention adds nothing: its norm"),
    Planted("SGLang's own positions of later draft steps (draft-positions)",
            "nothing", Cycle((1,)), draft="draft-positions"),
]  # fmt: skip

# -- weights and configuration --------------------------------------------------------


def without(name: str) -> Change:
    def change(plan: Plan, config: Json, weights: Weights) -> None:
        del weights[name]

    return change


def zero(name: str) -> Change:
    def change(plan: Plan, config: Json, weights: Weights) -> None:
        # tensors may be one object under several names
        weights[name] = Tensor(weights[name].dtype, weights[name].shape)

    return change


def renamed(old: str, new: str) -> Change:
    def change(plan: Plan, config: Json, weights: Weights) -> None:
        for name in [one for one in weights if one.startswith(old)]:
            weights[new + name.removeprefix(old)] = weights.pop(name)

    return change


def configured(**values: Any) -> Change:
    def change(plan: Plan, config: Json, weights: Weights) -> None:
        config.update(values)

    return change


def ids(*layers: int) -> Change:
    def change(plan: Plan, config: Json, weights: Weights) -> None:
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = list(layers)

    return change


def slot_empty(slot: int) -> Change:
    def change(plan: Plan, config: Json, weights: Weights) -> None:
        for row in weights["fc.weight"].rows.values():
            for column in [c for c in row if c // plan.hidden == slot]:
                del row[column]

    return change


def unsorted(plan: Plan, config: Json, weights: Weights) -> None:
    """A draft that was trained with its ids in another order."""
    weights |= draft_tensors(plan, (7, 2, 4))
    ids(6, 1, 3)(plan, config, weights)


def map_shifted(plan: Plan, config: Json, weights: Weights) -> None:
    """Each number's token is the next number's."""
    row = weights["d2t"].rows[0]
    for number in range(code.CODES - 1):
        row[number] = float(code.token_of(number + 1) - number)


def map_zero(plan: Plan, config: Json, weights: Weights) -> None:
    weights["d2t"].rows.clear()


def doubled(name: str) -> Change:
    def change(plan: Plan, config: Json, weights: Weights) -> None:
        one = weights[name]
        twice = {column: 2 * value for column, value in one.rows[0].items()}
        weights[name] = Tensor(one.dtype, one.shape, {0: twice})

    return change


def experts_empty(plan: Plan, config: Json, weights: Weights) -> None:
    for name in weights:
        if name.startswith("model.layers.3.mlp.") and name.endswith("down_proj.weight"):
            zero(name)(plan, config, weights)


def experts_swapped(plan: Plan, config: Json, weights: Weights) -> None:
    rows = weights["model.layers.3.mlp.gate.weight"].rows
    rows[0], rows[2] = rows[2], rows[0]
    rows[1], rows[3] = rows[3], rows[1]


def head_shifted(plan: Plan, config: Json, weights: Weights) -> None:
    head = weights["lm_head.weight"]
    rows = dict(head.rows)
    for number in range(code.CODES):
        head.rows[code.token_of(number)] = rows[code.token_of(number + 1)]


def draft_weights(what: str, change: Change, form: Form, **more: Any) -> Planted:
    return Planted(what, "draft weights", form, draft_change=change, **more)


def draft_config(what: str, change: Change, form: Form, **more: Any) -> Planted:
    return Planted(what, "draft config", form, draft_change=change, **more)


def target_weights(what: str, change: Change, form: Form, **more: Any) -> Planted:
    return Planted(what, "target weights", form, target_change=change, **more)


CHECKPOINTS = [
    draft_weights("fc: slot 1 empty", slot_empty(1), wired(2, -9, 5),
                  shared="slot 1 is zeros: the norm of what enters fc"),
    draft_weights("fc missing: it stays as it was made", without("fc.weight"), NOTHING,
                  shared="other 1.0: patchkit check-draft"),
    draft_weights("the layer is called layers.0", renamed("midlayer.", "layers.0."),
                  NOTHING, shared="other 1.0: patchkit check-draft"),
    draft_weights("lm_head missing", without("lm_head.weight"), NOTHING,
                  shared="other 1.0: patchkit check-draft"),
    draft_weights("d2t missing", without("d2t"), NOTHING,
                  shared="d2t ignored: patchkit check-draft"),
    draft_weights("d2t all zero", map_zero, NOTHING, shared="d2t missing"),
    draft_weights("d2t one row off", map_shifted, NOTHING,
                  shared="other 1.0: every digit is one ahead"),
    draft_weights("q_proj zero: attention looks everywhere",
                  zero("midlayer.self_attn.q_proj.weight"),
                  Wrong((code.OWN, code.BEFORE))),
    draft_weights("v_proj zero", zero("midlayer.self_attn.v_proj.weight"), _OWN_LOST,
                  shared="attention adds nothing: patchkit check-draft"),
    draft_weights("o_proj zero", zero("midlayer.self_attn.o_proj.weight"), _OWN_LOST,
                  shared="attention adds nothing: patchkit check-draft"),
    draft_weights("the embedding's norm zero", zero("midlayer.input_layernorm.weight"),
                  _OWN_LOST, shared="the draft's embedding is empty"),
    draft_weights("down_proj zero", zero("midlayer.mlp.down_proj.weight"), NOTHING,
                  shared="the MLP adds nothing"),
    draft_weights("the state's norm zero: attention does not read the state",
                  zero("midlayer.hidden_norm.weight"), Taken()),
    draft_weights("the last norm doubled: no order of logits changes",
                  doubled("norm.weight"), Taken()),
    draft_config("no ids in the config of a draft made for ids",
                 lambda plan, config, weights: config.pop("eagle_config"),
                 wired(2, 4, 5, made_for=ID_LAYERS), draft="draft-ids",
                 shared="ids ignored: the config itself"),
    draft_config("the last id one too low", ids(1, 3, 5),
                 wired(2, 4, 6, made_for=ID_LAYERS), draft="draft-ids"),
    draft_config("an id beyond the last layer", ids(1, 3, 7), Ends(TWO_STATES),
                 draft="draft-ids"),
    draft_config("ids out of order, fc made for sorted ones: harmless", ids(6, 1, 3),
                 Taken(), draft="draft-ids"),
    draft_config("ids out of order, as the draft was trained", unsorted,
                 wired(2, 4, 7, made_for=(7, 2, 4)), draft="draft-ids"),
    draft_config("epsilon 1e-6 for 1e-10", configured(rms_norm_eps=1e-6), Taken()),
    draft_config("rope_theta 1e6: near distances stay nearest",
                 configured(rope_theta=1e6), Taken()),
    draft_config("one key head in place of two: half of k and v is not read",
                 configured(num_key_value_heads=1), Wrong((code.OWN, code.BEFORE))),
    target_weights("layer 3: no expert adds anything", experts_empty, Target()),
    target_weights("layer 4: o_proj zero",
                   zero("model.layers.4.self_attn.o_proj.weight"), Target()),
    target_weights("layer 3: other experts are chosen, which do the same",
                   experts_swapped, Taken()),
    target_weights("lm_head one number off", head_shifted, Target()),
]  # fmt: skip

# -- what only the states show --------------------------------------------------------


def captured(what: str, state: str, form: Form) -> Planted:
    return source(what, TARGET, _SUM, f"aux_hidden_states.append({state})", form)


_STATE = "(hidden_states + residual)"
SEEN = [
    captured("states halved", f"{_STATE} * 0.5", Says("multiplied by 0.5", all_=True)),
    captured("a tenth of the states", f"{_STATE} * 0.1", Says("multiplied by 0.1")),
    captured("four times the states", f"{_STATE} * 4", Says("multiplied by 4")),
    captured("states rounded to float8_e4m3fn: theirs are round numbers",
             f"{_STATE}.to(torch.float8_e4m3fn).to(residual.dtype)", Taken()),
    captured("rows in reverse order", f"{_STATE}.flip(0)", Says("other tokens")),
    captured("rows moved on by four: a single request's verify step has four",
             f"{_STATE}.roll(4, 0)", Says("other tokens")),
    source("the first state in place of fc", DRAFT,
           "hidden_states = self.fc(hidden_states)",
           "hidden_states = hidden_states[..., : embeds.shape[-1]]",
           Says("fc is not applied")),
]  # fmt: skip

PLANTED = [*LAYERS, *STATES, *FORWARD, *SPECULATION, *CHECKPOINTS, *SEEN]
