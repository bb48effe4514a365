"""Tiny checkpoints, each with one fault planted; a few with none, to begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from patchkit.fixtures import drafts, load
from patchkit.fixtures.drafts import Draft, Values, tensor

Change = Callable[[Draft], None]
IDS = "eagle_aux_hidden_state_layer_ids"
#: Of every release whose graphs are captured before the ids are known.
GRAPHS = "graphs-differ"


@dataclass(frozen=True)
class Fault:
    name: str
    kind: str
    change: Change
    algorithm: str = "EAGLE3"
    target: Mapping[str, Any] = field(default_factory=dict)

    def draft(self) -> Draft:
        made = drafts.KINDS[self.kind]()
        self.change(made)
        return made

    def against(self) -> dict[str, Any]:
        """The target's config.json: of the tiny one, or of a wrapper around it."""
        if self.target:
            return {**self.target, "text_config": load("target")}
        return load("target")


FAULTS: dict[str, Fault] = {}


def fault(
    kind: str = "sglang",
    *,
    algorithm: str = "EAGLE3",
    target: Mapping[str, Any] | None = None,
) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        name = change.__name__.replace("_", "-")
        FAULTS[name] = Fault(name, kind, change, algorithm, target or {})
        return change

    return add


def ids(draft: Draft, layers: Any) -> None:
    draft.config["eagle_config"] = {IDS: layers}


def states(draft: Draft, count: int) -> None:
    """An fc for so many states."""
    draft.tensors["fc.weight"] = tensor("fc.weight", (64, count * 64))


# -- whole ones ----------------------------------------------------------------------


@fault()
def good_sglang(draft: Draft) -> None:
    pass


@fault("original")
def original_as_published(draft: Draft) -> None:
    pass


@fault("speculators")
def speculators_as_published(draft: Draft) -> None:
    pass


@fault("kimi")
def good_kimi(draft: Draft) -> None:
    pass


@fault("eagle", algorithm="EAGLE")
def good_eagle(draft: Draft) -> None:
    pass


@fault()
def head_of_the_target(draft: Draft) -> None:
    draft.config["draft_vocab_size"] = None
    for name in ("lm_head.weight", "d2t", "t2d"):
        del draft.tensors[name]


@fault("narrow")
def good_narrow(draft: Draft) -> None:
    """Half as wide as its target, and says so."""


# -- names and shapes -----------------------------------------------------------------


@fault()
def layer_called_layers_0(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("midlayer.", "layers.0."))


@fault()
def layer_called_blocks_0(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("midlayer.", "blocks.0."))


@fault()
def names_behind_module(draft: Draft) -> None:
    draft.rename(lambda name: "module." + name)


@fault()
def fc_called_fusion(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("fc.", "fusion."))


@fault()
def one_projection_renamed(draft: Draft) -> None:
    draft.rename(lambda name: name.replace("self_attn.k_proj", "self_attn.key"))


@fault()
def head_missing(draft: Draft) -> None:
    del draft.tensors["lm_head.weight"]


@fault()
def norm_missing(draft: Draft) -> None:
    del draft.tensors["norm.weight"]


@fault()
def embedding_missing(draft: Draft) -> None:
    del draft.tensors["embed_tokens.weight"]


@fault("narrow")
def embedding_missing_where_it_is_not_shared(draft: Draft) -> None:
    del draft.tensors["embed_tokens.weight"]


@fault()
def head_of_the_whole_vocabulary(draft: Draft) -> None:
    draft.tensors["lm_head.weight"] = tensor("lm_head.weight", (128, 64))


@fault()
def head_dim_lost(draft: Draft) -> None:
    draft.config["head_dim"] = 8


@fault()
def norms_of_fc_unasked_for(draft: Draft) -> None:
    for number in range(3):
        name = f"fc_norm.{number}.weight"
        draft.tensors[name] = tensor(name, (64,))


@fault()
def norms_of_fc_asked_for(draft: Draft) -> None:
    norms_of_fc_unasked_for(draft)
    draft.config |= {"fc_norm": True, "norm_output": True}


@fault("kimi")
def half_of_a_fused_projection(draft: Draft) -> None:
    del draft.tensors["layers.0.self_attn.q_a_proj.weight"]


# -- classes --------------------------------------------------------------------------


@fault()
def no_such_class(draft: Draft) -> None:
    draft.config["architectures"] = ["LlamaForCausalLMEagle4"]


@fault()
def no_architectures(draft: Draft) -> None:
    del draft.config["architectures"]


@fault()
def draft_vocabulary_size_lost(draft: Draft) -> None:
    del draft.config["draft_vocab_size"]


@fault()
def two_layers(draft: Draft) -> None:
    draft.config["num_hidden_layers"] = 2
    for name, one in list(draft.tensors.items()):
        if name.startswith("midlayer."):
            new = name.replace("midlayer.", "layers.1.")
            shape = one.shape
            if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
                shape = (shape[0], 64)
            draft.tensors[new] = tensor(new, shape)


@fault()
def target_hidden_size_null(draft: Draft) -> None:
    draft.config["target_hidden_size"] = None


# -- fc -------------------------------------------------------------------------------


@fault()
def fc_of_one_state(draft: Draft) -> None:
    states(draft, 1)


@fault()
def four_states(draft: Draft) -> None:
    states(draft, 4)
    ids(draft, [1, 3, 4, 5])


@fault()
def four_ids_fc_of_three(draft: Draft) -> None:
    ids(draft, [1, 3, 4, 5])


@fault()
def one_id(draft: Draft) -> None:
    ids(draft, [4])
    draft.config["num_aux_hidden_states"] = 3


@fault("narrow")
def width_of_the_target_unsaid(draft: Draft) -> None:
    del draft.config["target_hidden_size"]


@fault("narrow")
def fc_as_narrow_as_the_draft(draft: Draft) -> None:
    """One whole state, halved: it loads, and the target's embedding does not fit."""
    del draft.config["target_hidden_size"]
    draft.tensors["fc.weight"] = tensor("fc.weight", (32, 96))


@fault()
def another_targets_width(draft: Draft) -> None:
    draft.config["target_hidden_size"] = 48
    draft.tensors["fc.weight"] = tensor("fc.weight", (64, 144))


# -- layers ---------------------------------------------------------------------------


@fault()
def no_ids(draft: Draft) -> None:
    del draft.config["eagle_config"]


@fault()
def ids_outside_of_eagle_config(draft: Draft) -> None:
    del draft.config["eagle_config"]
    draft.config[IDS] = [1, 4, 5]


@fault()
def first_id_is_2(draft: Draft) -> None:
    ids(draft, [2, 4, 6])


@fault()
def ids_unsorted(draft: Draft) -> None:
    ids(draft, [6, 1, 4])


@fault()
def ids_twice(draft: Draft) -> None:
    ids(draft, [1, 1, 4])


@fault()
def id_of_the_embedding(draft: Draft) -> None:
    ids(draft, [-1, 2, 4])


@fault()
def id_of_the_last_layer(draft: Draft) -> None:
    ids(draft, [1, 4, 7])


@fault()
def ids_as_text(draft: Draft) -> None:
    ids(draft, "1,4,6")


@fault()
def no_ids_at_all_in_the_list(draft: Draft) -> None:
    ids(draft, [])


@fault(target={"architectures": ["KimiK25ForConditionalGeneration"]})
def behind_the_kimi_wrapper(draft: Draft) -> None:
    pass


# -- vocabulary -----------------------------------------------------------------------


@fault()
def map_lost(draft: Draft) -> None:
    del draft.tensors["d2t"], draft.tensors["t2d"]


@fault()
def map_holds_ids(draft: Draft) -> None:
    draft.tensors["d2t"] = Values("I64", (64,), tuple(range(0, 128, 2)))


@fault()
def map_shorter_than_the_head(draft: Draft) -> None:
    draft.tensors["d2t"] = Values("I64", (60,), tuple(range(60)))


@fault()
def map_out_of_the_vocabulary(draft: Draft) -> None:
    draft.tensors["d2t"] = Values("I64", (64,), (*range(63), 500))


@fault()
def map_of_floats(draft: Draft) -> None:
    draft.tensors["d2t"] = Values("F32", (64,), tuple(range(64)))


@fault()
def map_of_zeros(draft: Draft) -> None:
    draft.tensors["d2t"] = Values("I64", (64,), (0,) * 64)


@fault()
def maps_disagree(draft: Draft) -> None:
    draft.tensors["t2d"] = Values("BOOL", (128,), (0, 1) * 64)


# -- fields and numbers ----------------------------------------------------------------


@fault()
def output_of_the_norm_handed_on(draft: Draft) -> None:
    draft.config["norm_output"] = True


@fault()
def one_norm_in_front_of_fc(draft: Draft) -> None:
    draft.config["norm_before_fc"] = True
    draft.tensors["input_norm.weight"] = tensor("input_norm.weight", (192,))


@fault("speculators")
def residual_behind_the_norm(draft: Draft) -> None:
    draft.config["norm_before_residual"] = True


@fault()
def other_numbers_than_the_target(draft: Draft) -> None:
    draft.config |= {
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64,
    }


# -- algorithms -----------------------------------------------------------------------


@fault(algorithm="EAGLE")
def started_as_eagle(draft: Draft) -> None:
    pass


@fault("eagle")
def eagle_started_as_eagle3(draft: Draft) -> None:
    pass


@fault()
def aux_states_switched_off(draft: Draft) -> None:
    draft.config["eagle_config"]["use_aux_hidden_state"] = False
