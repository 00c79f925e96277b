"""What is known of published models, for when their config.json is not at hand. A given field always wins over a preset's.

From the models' published config.json files, as carried by aiconfigurator and transformers (November 2026).
"""

from collections.abc import Mapping
from typing import Any

from hisparse_runtime.geometry.config_fields import ModelConfigError

_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}

_GLM_5: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    "architectures": ["GlmMoeDsaForCausalLM"],
    "torch_dtype": "bfloat16",
    "quantization_config": _FP8,
    "num_hidden_layers": 78,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 1,
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 64,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "index_topk": 2048,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "vocab_size": 154880,
    "tie_word_embeddings": False,
    "max_position_embeddings": 202752,
}
# Index sharing: layers 0, 1, 2, 6, 10, ..., 74 run an indexer.
_GLM_5_2: dict[str, Any] = {
    **_GLM_5,
    "index_topk_freq": 4,
    "index_skip_topk_offset": 3,
    "index_share_for_mtp_iteration": True,
    "max_position_embeddings": 1048576,
}
_DEEPSEEK_V3_2: dict[str, Any] = {
    **_GLM_5,
    "model_type": "deepseek_v32",
    "architectures": ["DeepseekV32ForCausalLM"],
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "index_n_heads": 64,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
}

# One sparse-MLA layer to three with linear attention, behind a vision tower. vLLM serves it without HiSparse.
_GLM_5_3_FLASH: dict[str, Any] = {
    "model_type": "glm5_next",
    "architectures": ["Glm5NextForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "quantization_config": _FP8,
    "text_config": {
        "model_type": "glm5_next_text",
        "num_hidden_layers": 45,
        "num_nextn_predict_layers": 1,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 256,
        "qk_rope_head_dim": 0,
        "v_head_dim": 256,
        "index_topk": 2048,
        "index_n_heads": 32,
        "index_head_dim": 128,
        "index_kpool": 4,
        "layer_types": ["indexed_attention" if layer % 4 == 3 else "linear_attention" for layer in range(45)],
        "max_position_embeddings": 1048576,
    },
}

# By the name behind the organisation, in lower case.
_PRESETS: dict[str, dict[str, Any]] = {
    "glm-5": _GLM_5,
    "glm-5.1": _GLM_5,
    "glm-5.2": _GLM_5_2,
    "glm-5.3": _GLM_5_2,
    "glm-5.3-flash": _GLM_5_3_FLASH,
    "deepseek-v3.2": _DEEPSEEK_V3_2,
}
# What a name may have behind the model's own: how its weights are stored.
_WEIGHTS: dict[str, dict[str, Any] | None] = {"": _FP8, "-fp8": _FP8, "-nvfp4": _NVFP4, "-fp4": _NVFP4, "-bf16": None}


def preset_names() -> tuple[str, ...]:
    return tuple(_PRESETS)


def complete_config(name: str, config: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`config` with what is absent filled in from the preset for `name`, and the names of the fields that were.

    Without a preset, the config comes back as it is. Raises ModelConfigError when it is empty then: nothing to plan with.
    """
    preset = _preset(name)
    if preset is None:
        if not config:
            raise ModelConfigError(
                f"model {name!r} has no preset ({', '.join(_PRESETS)}): give its config.json, whose layers and dimensions decide"
                " every size"
            )
        return dict(config), ()
    if config:
        # a config.json without it is one of weights that are not quantised
        del preset["quantization_config"]
    filled = tuple(field for field in preset if field not in config)
    return {**preset, **config}, filled


def _preset(name: str) -> dict[str, Any] | None:
    """`zai-org/GLM-5.3-FP8` is GLM-5.3 with FP8 weights; a config that is given says itself how weights are stored."""
    base = name.strip().lower().rpartition("/")[2]
    for suffix, weights in _WEIGHTS.items():
        model = base.removesuffix(suffix) if suffix else base
        if (suffix == "" or base.endswith(suffix)) and model in _PRESETS:
            return {**_PRESETS[model], "quantization_config": weights}
    return None
