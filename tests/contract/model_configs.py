"""config.json of the models that the contract is about, and variations of them that no checkpoint has."""

import random
from typing import Any

Config = dict[str, Any]

_DSA: Config = {
    "model_type": "glm_moe_dsa",
    "architectures": ["GlmMoeDsaForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 78,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "index_topk": 2048,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "vocab_size": 154880,
    "max_position_embeddings": 202752,
    "tie_word_embeddings": False,
    "rope_theta": 1000000,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    "bos_token_id": 0,
    "eos_token_id": 1,
}
GLM_5_1: Config = _DSA
GLM_5_3: Config = _DSA | {
    "max_position_embeddings": 1048576,
    "index_topk_freq": 4,
    "index_skip_topk_offset": 3,
    "index_share_for_mtp_iteration": True,
}
DEEPSEEK_V3_2: Config = _DSA | {
    "model_type": "deepseek_v32",
    "architectures": ["DeepseekV32ForCausalLM"],
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "index_n_heads": 64,
    "n_group": 8,
    "topk_group": 4,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
}
_FLASH_TEXT: Config = {
    "model_type": "glm5_next_text",
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 45,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 256,
    "qk_rope_head_dim": 0,
    "v_head_dim": 256,
    "n_routed_experts": 288,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "swiglu_limit": 10.0,
    "index_topk": 2048,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_kpool": 4,
    "mla_use_nope": True,
    "index_kpool_always_select_tail": True,
    "index_share_for_mtp_iteration": True,
    "indexer_rope_interleave": True,
    "linear_attn_config": {
        "head_dim": 128,
        "num_heads": 64,
        "short_conv_kernel_size": 4,
        "gate_lower_bound": -5.0,
        "safe_gate": True,
        "full_attn_layers": list(range(3, 45, 4)),
        "kda_layers": [layer for layer in range(45) if layer % 4 != 3],
    },
    "mhc": False,  # hyper-connections keep no cache, and their kernels are not installed
    "hc_mult": 4,
    "num_nextn_predict_layers": 1,
    "rms_norm_eps": 1e-5,
    "vocab_size": 154880,
    "max_position_embeddings": 1048576,
    "tie_word_embeddings": False,
}
GLM_5_3_FLASH: Config = {
    "model_type": "glm5_next",
    "architectures": ["Glm5NextForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "text_config": _FLASH_TEXT,
    "vision_config": {},
}
GLM_5_3_FLASH_TEXT: Config = _FLASH_TEXT | {"model_type": "glm5_next", "architectures": ["Glm5NextForCausalLM"]}
KNOWN = {"glm-5.3": GLM_5_3, "glm-5.1": GLM_5_1, "deepseek-v3.2": DEEPSEEK_V3_2}


def varied(config: Config, *, chance: random.Random) -> Config:
    """Another number of layers, other sharing of indices, another top-k: what the planner is generic in."""
    varied_config = dict(config)
    num_layers = chance.choice([1, 2, 3, 5, 8, 13, 27, 40, 47, 61, 64, 78, 79, 92])
    varied_config["num_hidden_layers"] = num_layers
    varied_config["num_nextn_predict_layers"] = chance.choice([1, 1, 1, 1, 1, 1, 2, 3])
    varied_config["index_topk"] = chance.choice([2048, 2048, 2048, 512, 1024, 4096])
    varied_config["max_position_embeddings"] = chance.choice([163840, 262144, 1048576])
    for name in ("index_topk_freq", "index_skip_topk_offset", "index_topk_pattern"):
        varied_config.pop(name, None)
    kind = chance.choice(["frequency", "frequency", "frequency", "pattern", "none"])
    if kind == "frequency":
        varied_config["index_topk_freq"] = chance.randint(1, 6)
        if chance.random() < 0.75:
            varied_config["index_skip_topk_offset"] = chance.randint(0, 4)
    if kind == "pattern":
        # Shorter than the model now and then: vLLM gives the layers behind its end an indexer each.
        length = chance.choice([num_layers, num_layers, max(1, num_layers - 3), num_layers + 1])
        share = chance.choice([0.3, 0.6, 0.85])
        varied_config["index_topk_pattern"] = "".join("S" if chance.random() < share else "F" for _ in range(length))
    return varied_config
