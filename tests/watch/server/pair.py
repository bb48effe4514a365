"""A tiny target and EAGLE-3 draft, of random weights: ``pair.py FOLDER [SHARDS]``.

DeepSeek-V3 by shape, eight layers; the draft one. Run by the server's interpreter.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

#: many words, for a checkpoint of 35 MB: a load that can be watched
WORDS, HIDDEN, LAYERS, HEADS = 65536, 64, 8, 4
#: ranks of the latent attention, and widths of its heads
Q_RANK, KV_RANK, NOPE, ROPE, VALUE = 24, 40, 16, 16, 16


def target_weights():
    made = {
        "model.embed_tokens.weight": (WORDS, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (WORDS, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        attention = at + "self_attn."
        made |= {
            at + "input_layernorm.weight": (HIDDEN,),
            at + "post_attention_layernorm.weight": (HIDDEN,),
            attention + "q_a_proj.weight": (Q_RANK, HIDDEN),
            attention + "q_a_layernorm.weight": (Q_RANK,),
            attention + "q_b_proj.weight": (HEADS * (NOPE + ROPE), Q_RANK),
            attention + "kv_a_proj_with_mqa.weight": (KV_RANK + ROPE, HIDDEN),
            attention + "kv_a_layernorm.weight": (KV_RANK,),
            attention + "kv_b_proj.weight": (HEADS * (NOPE + VALUE), KV_RANK),
            attention + "o_proj.weight": (HIDDEN, HEADS * VALUE),
        }
        if not layer:
            made |= _mlp(at + "mlp.", 96)
            continue
        made[at + "mlp.gate.weight"] = (4, HIDDEN)
        made[at + "mlp.gate.e_score_correction_bias"] = (4,)
        made |= _mlp(at + "mlp.shared_experts.", 32)
        for expert in range(4):
            made |= _mlp(f"{at}mlp.experts.{expert}.", 32)
    return made


def draft_weights():
    at = "midlayer."
    return {
        "embed_tokens.weight": (WORDS, HIDDEN),
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (WORDS, HIDDEN),
        at + "hidden_norm.weight": (HIDDEN,),
        at + "input_layernorm.weight": (HIDDEN,),
        at + "post_attention_layernorm.weight": (HIDDEN,),
        at + "self_attn.q_proj.weight": (4 * 16, 2 * HIDDEN),
        at + "self_attn.k_proj.weight": (2 * 16, 2 * HIDDEN),
        at + "self_attn.v_proj.weight": (2 * 16, 2 * HIDDEN),
        at + "self_attn.o_proj.weight": (HIDDEN, 4 * 16),
    } | _mlp(at + "mlp.", 96)


def _mlp(at, width):
    return {
        at + "gate_proj.weight": (width, HIDDEN),
        at + "up_proj.weight": (width, HIDDEN),
        at + "down_proj.weight": (HIDDEN, width),
    }


SHARED = {
    "vocab_size": WORDS,
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_attention_heads": HEADS,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "float32",
}
TARGET = SHARED | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 32,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": HEADS,
    "n_shared_experts": 1,
    "n_routed_experts": 4,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": KV_RANK,
    "q_lora_rank": Q_RANK,
    "qk_rope_head_dim": ROPE,
    "qk_nope_head_dim": NOPE,
    "v_head_dim": VALUE,
    "topk_method": "noaux_tc",
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "rope_theta": 10000.0,
    "ep_size": 1,
    "num_nextn_predict_layers": 0,
    "rope_scaling": {
        "type": "yarn",
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 512,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "rope_theta": 10000.0,
    },
}
DRAFT = SHARED | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "draft_vocab_size": WORDS,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "mlp_bias": False,
}


def write(folder, config, shapes, shards):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: torch.ones(shape)
        if len(shape) == 1
        else torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        for name, shape in shapes.items()
    }
    if "draft_vocab_size" in config:
        weights["d2t"] = torch.zeros(WORDS, dtype=torch.int64)
        weights["t2d"] = torch.ones(WORDS, dtype=torch.bool)
    names = sorted(weights)
    index = {}
    for number in range(shards):
        some = {name: weights[name] for name in names[number::shards]}
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        if shards == 1:
            file = "model.safetensors"
        save_file(some, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(some, file)
    if shards > 1:
        told = {"metadata": {}, "weight_map": index}
        (folder / "model.safetensors.index.json").write_text(json.dumps(told))


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(
        models.WordLevel({f"t{i}": i for i in range(256)}, unk_token="t2")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "t0",
        "eos_token": "t1",
        "unk_token": "t2",
        "pad_token": "t0",
        "model_max_length": 2048,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


if __name__ == "__main__":
    top = Path(sys.argv[1])
    shards = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    write(top / "target", TARGET, target_weights(), shards)
    write_tokenizer(top / "target")
    write(top / "draft", DRAFT, draft_weights(), 1)
