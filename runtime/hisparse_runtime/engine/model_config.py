"""The fields of config.json that the forward pass needs; the memory fields are geometry's."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hisparse_runtime.geometry import ModelConfigError, ModelGeometry, embedded_geometry, whole_number

_MIN_VOCAB = 256  # text is tokenised by bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A sparse-MLA transformer with a lightning indexer in every layer (field names of DeepSeek-V3.2)."""

    geometry: ModelGeometry
    hidden_size: int
    num_attention_heads: int
    q_lora_rank: int
    qk_nope_head_dim: int
    v_head_dim: int
    index_n_heads: int
    intermediate_size: int
    vocab_size: int
    rope_theta: float
    rms_norm_eps: float
    eos_token_ids: frozenset[int]


def load_model_config(path: Path) -> ModelConfig:
    """Raises ModelConfigError if the file cannot be read, is not a JSON object, or lacks a field."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelConfigError(f"--model-config {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelConfigError(f"--model-config {path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelConfigError(f"--model-config {path} holds a {type(content).__name__}, a model's config.json is an object")
    return read_model_config(content)


def read_model_config(config: Mapping[str, Any]) -> ModelConfig:
    """Raises ModelConfigError naming the field that is missing or wrong."""
    geometry = embedded_geometry(config)
    if geometry.model.qk_rope_head_dim % 2:
        raise ModelConfigError(
            f"config.json: qk_rope_head_dim must be even, rotation works on pairs, got {geometry.model.qk_rope_head_dim}"
        )
    if geometry.model.index_head_dim < geometry.model.qk_rope_head_dim:
        raise ModelConfigError(
            f"config.json: index_head_dim {geometry.model.index_head_dim} must be at least qk_rope_head_dim "
            f"{geometry.model.qk_rope_head_dim}: the indexer's keys carry the rotary part"
        )
    vocab_size = whole_number(config, "vocab_size")
    if vocab_size < _MIN_VOCAB:
        raise ModelConfigError(
            f"config.json: vocab_size must be at least {_MIN_VOCAB}, as text is tokenised by bytes, got {vocab_size}"
        )
    return ModelConfig(
        geometry=geometry,
        hidden_size=whole_number(config, "hidden_size"),
        num_attention_heads=whole_number(config, "num_attention_heads"),
        q_lora_rank=whole_number(config, "q_lora_rank"),
        qk_nope_head_dim=whole_number(config, "qk_nope_head_dim"),
        v_head_dim=whole_number(config, "v_head_dim"),
        index_n_heads=whole_number(config, "index_n_heads"),
        intermediate_size=whole_number(config, "intermediate_size"),
        vocab_size=vocab_size,
        rope_theta=_real(config, "rope_theta"),
        rms_norm_eps=_real(config, "rms_norm_eps"),
        eos_token_ids=_eos(config),
    )


def _real(config: Mapping[str, Any], field: str) -> float:
    value = _present(config, field)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ModelConfigError(f"config.json: {field} must be a positive number, got {value!r}")
    return float(value)


def _eos(config: Mapping[str, Any]) -> frozenset[int]:
    value = config.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in ids):
        raise ModelConfigError(f"config.json: eos_token_id must be a token id or a list of them, got {value!r}")
    return frozenset(ids)


def _present(config: Mapping[str, Any], field: str) -> Any:
    if field not in config:
        raise ModelConfigError(f"config.json has no {field!r}: the embedded engine needs it to build the model")
    return config[field]
