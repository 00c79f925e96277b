"""A model's config.json becomes the sizes of its KV cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# float32 everywhere in the embedded engine's caches; quantised rows come with the vLLM dialects.
_ELEMENT_BYTES = 4


class ModelConfigError(ValueError):
    """config.json cannot be served; the message names the field and what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGeometry:
    """Sizes of a sparse-MLA model's KV cache. A *row* is one token's latent in one layer, a *page* is `page_tokens` tokens.

    Every layer has its own lightning indexer, and all layers form one resident group and one hot group.
    """

    num_layers: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    index_head_dim: int
    index_topk: int
    max_position_embeddings: int
    page_tokens: int

    @property
    def row_bytes(self) -> int:
        """One token's latent (compressed KV and rotary part) in one layer."""
        return (self.kv_lora_rank + self.qk_rope_head_dim) * _ELEMENT_BYTES

    @property
    def indexer_row_bytes(self) -> int:
        """One token's indexer key in one layer."""
        return self.index_head_dim * _ELEMENT_BYTES

    @property
    def host_page_bytes(self) -> int:
        """One page of latents over all layers: a block of the host pool."""
        return self.num_layers * self.page_tokens * self.row_bytes

    @property
    def indexer_page_bytes(self) -> int:
        """One page of indexer keys over all layers: a block of the offload tier."""
        return self.num_layers * self.page_tokens * self.indexer_row_bytes

    @property
    def device_block_bytes(self) -> int:
        """A block of the device pool holds a resident page, a page of a hot region or of indexer keys: the largest decides."""
        return max(self.host_page_bytes, self.indexer_page_bytes)


def read_geometry(config: Mapping[str, Any], *, page_tokens: int = 16) -> ModelGeometry:
    """Geometry of the model that `config` (the content of config.json) describes.

    Field names are those of DeepSeek-V3.2 and GLM-5.x. Raises ModelConfigError naming the field that is missing or wrong.
    """
    topk_freq = config.get("index_topk_freq", 1)
    if topk_freq != 1:
        raise ModelConfigError(
            f"index_topk_freq is {topk_freq!r}: layers that share an indexer are not supported; use 1 or leave it out"
        )
    return ModelGeometry(
        num_layers=_positive(config, "num_hidden_layers"),
        kv_lora_rank=_positive(config, "kv_lora_rank"),
        qk_rope_head_dim=_positive(config, "qk_rope_head_dim"),
        index_head_dim=_positive(config, "index_head_dim"),
        index_topk=_positive(config, "index_topk"),
        max_position_embeddings=_positive(config, "max_position_embeddings"),
        page_tokens=page_tokens,
    )


def _positive(config: Mapping[str, Any], field: str) -> int:
    if field not in config:
        raise ModelConfigError(
            f"config.json has no {field!r}: a sparse-MLA model with a lightning indexer (GLM-5.x, DeepSeek-V3.2) has one"
        )
    value = config[field]
    # bool is an int in Python, not in config.json
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelConfigError(f"config.json: {field} must be a positive whole number, got {value!r}")
    return value
