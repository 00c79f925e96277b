"""Seeded random weights in the shapes of the config. The model says nothing sensible; memory, selection and speed are real."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hisparse_runtime.engine.model_config import ModelConfig

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer. `key_up` and `value_up` are the halves of kv_b_proj, by head, for attention in the absorbed form."""

    query_down: Floats  # [hidden, q_lora]
    query_up: Floats  # [q_lora, heads x (nope + rope)]
    latent_down: Floats  # [hidden, kv_lora + rope]
    key_up: Floats  # [heads, nope, kv_lora]
    value_up: Floats  # [heads, kv_lora, v]
    output: Floats  # [heads x v, hidden]
    index_query: Floats  # [q_lora, index_heads x index_dim]
    index_key: Floats  # [hidden, index_dim]
    index_weight: Floats  # [hidden, index_heads]
    gate: Floats  # [hidden, intermediate]
    up: Floats  # [hidden, intermediate]
    down: Floats  # [intermediate, hidden]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    embedding: Floats  # [vocab, hidden]
    layers: tuple[LayerWeights, ...]
    logits: Floats  # [hidden, vocab]


def make_weights(config: ModelConfig, *, seed: int) -> Weights:
    """The same config and seed give the same weights on every machine."""
    generator = np.random.Generator(np.random.PCG64(seed))
    geometry = config.geometry
    heads, nope, rope, latent = (
        config.num_attention_heads,
        config.qk_nope_head_dim,
        geometry.model.qk_rope_head_dim,
        geometry.model.kv_lora_rank,
    )

    def normal(*shape: int) -> Floats:
        # Scaled by the inputs of each output, so that activations keep their size.
        return generator.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-2]))

    def layer() -> LayerWeights:
        return LayerWeights(
            query_down=normal(config.hidden_size, config.q_lora_rank),
            query_up=normal(config.q_lora_rank, heads * (nope + rope)),
            latent_down=normal(config.hidden_size, latent + rope),
            key_up=normal(heads, nope, latent),
            value_up=normal(heads, latent, config.v_head_dim),
            output=normal(heads * config.v_head_dim, config.hidden_size),
            index_query=normal(config.q_lora_rank, config.index_n_heads * geometry.model.index_head_dim),
            index_key=normal(config.hidden_size, geometry.model.index_head_dim),
            index_weight=normal(config.hidden_size, config.index_n_heads),
            gate=normal(config.hidden_size, config.intermediate_size),
            up=normal(config.hidden_size, config.intermediate_size),
            down=normal(config.intermediate_size, config.hidden_size),
        )

    embedding = generator.standard_normal((config.vocab_size, config.hidden_size), dtype=np.float32)
    return Weights(
        embedding=embedding,
        layers=tuple(layer() for _ in range(geometry.num_layers)),
        logits=normal(config.hidden_size, config.vocab_size),
    )
