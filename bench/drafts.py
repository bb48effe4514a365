"""How long check-draft takes on a draft of real size: shapes of Kimi-K2's, no values.

The checkpoint is a sparse file of some gigabytes that take no room. Prints seconds, and
the most memory of any process, for each release named (default 0.5.9 and 0.5.23).
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from patchkit.draft.header import BITS
from patchkit.fetch import fetch_tree

HIDDEN, MIDDLE, HEADS, HEAD = 7168, 18432, 64, 128
VOCABULARY, DRAFT = 163840, 32000

TARGET = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": MIDDLE,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "n_shared_experts": 1,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "max_position_embeddings": 262144,
    "rope_theta": 50000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 64.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    },
    "torch_dtype": "bfloat16",
}
CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "draft_vocab_size": DRAFT,
    "hidden_size": HIDDEN,
    "intermediate_size": MIDDLE,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False,
    "max_position_embeddings": 262144,
    "rope_theta": 50000.0,
    "torch_dtype": "bfloat16",
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]},
}
SHAPES = {
    "fc.weight": (HIDDEN, 3 * HIDDEN),
    "norm.weight": (HIDDEN,),
    "lm_head.weight": (DRAFT, HIDDEN),
    "embed_tokens.weight": (VOCABULARY, HIDDEN),
    **{
        f"midlayer.{name}.weight": (HIDDEN,)
        for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    },
    **{
        f"midlayer.self_attn.{name}_proj.weight": (HEADS * HEAD, 2 * HIDDEN)
        for name in "qkv"
    },
    "midlayer.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD),
    "midlayer.mlp.gate_proj.weight": (MIDDLE, HIDDEN),
    "midlayer.mlp.up_proj.weight": (MIDDLE, HIDDEN),
    "midlayer.mlp.down_proj.weight": (HIDDEN, MIDDLE),
    "t2d": (VOCABULARY,),
    "d2t": (DRAFT,),
}
_DTYPES = {"d2t": "I64", "t2d": "BOOL"}


def write(folder: Path) -> int:
    """The draft's parameters."""
    header, at, count = {}, 0, 0
    for name, shape in SHAPES.items():
        numbers = 1
        for one in shape:
            numbers *= one
        dtype = _DTYPES.get(name, "BF16")
        size = numbers * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
        count += numbers
    head = json.dumps(header).encode()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        os.truncate(file.fileno(), 8 + len(head) + at)
        # every fifth token of the target's
        file.seek(8 + len(head) + at - 8 * DRAFT)
        file.write(b"".join((4 * n).to_bytes(8, "little") for n in range(DRAFT)))
        file.seek(8 + len(head) + at - 8 * DRAFT - VOCABULARY)
        file.write(bytes(n % 5 == 0 and n < 5 * DRAFT for n in range(VOCABULARY)))
    return count


def main(releases: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        draft, against = Path(scratch, "draft"), Path(scratch, "target.json")
        against.write_text(json.dumps(TARGET))
        count = write(draft)
        size = (draft / "model.safetensors").stat().st_size
        print(f"{count / 1e9:.1f} billion parameters, {size / 1e9:.1f} GB")
        for release in releases:
            tree = Path(scratch, release)
            fetch_tree(release, tree)
            command = [sys.executable, "-m", "patchkit", "check-draft", str(draft)]
            command += ["--against", str(against), "--target", str(tree), "--json"]
            times = []
            for _ in range(3):
                began = time.perf_counter()
                done = subprocess.run(command, capture_output=True, text=True)
                times.append(time.perf_counter() - began)
            value = json.loads(done.stdout)
            codes = [o["code"] for o in value["findings"] if o["severity"] == "ERROR"]
            most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
            print(
                f"{release}: {min(times):.1f} to {max(times):.1f} s, at most"
                f" {value['peak_mb']} MB a worker, {most} MB any process;"
                f" errors: {', '.join(codes) or 'none'}"
            )


if __name__ == "__main__":
    main(sys.argv[1:] or ["0.5.9", "0.5.23"])
