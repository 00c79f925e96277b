"""The facts of a sparse-MLA model that its cache depends on, read from its config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hisparse_runtime.geometry.config_fields import MOST_LAYERS, ModelConfigError, whole_number
from hisparse_runtime.geometry.index_sharing import indexer_owners

# Widened top-K buffers come in multiples of a tile of the sparse attention kernels (vLLM 0.33).
_TOPK_TILE_ROWS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseMlaModel:
    """A decoder whose layers keep one latent per token (MLA) and attend to the `index_topk` tokens that an indexer picks.

    `owns_indexer` has an entry per layer: True where the layer runs an indexer of its own (a leader), False where it
    uses the choice of the layer before it (a follower). `num_mtp_layers` draft layers follow when speculation is on; each owns an
    indexer. `index_kpool` tokens share one indexer key.
    """

    model_type: str
    num_hidden_layers: int
    num_mtp_layers: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    index_topk: int
    index_head_dim: int
    index_kpool: int
    max_position_embeddings: int
    owns_indexer: tuple[bool, ...]

    @property
    def topk_buffer_rows(self) -> int:
        """Rows that one token can select: index_topk, and in k-pool models room for the pool that is not complete yet."""
        if self.index_kpool == 1:
            return self.index_topk
        widest = self.index_topk + self.index_kpool - 1
        return -(-widest // _TOPK_TILE_ROWS) * _TOPK_TILE_ROWS

    def layers(self, *, with_mtp: bool) -> tuple[bool, ...]:
        """`owns_indexer` with the draft layers that speculation adds."""
        return self.owns_indexer + (True,) * (self.num_mtp_layers if with_mtp else 0)


def read_model(config: Mapping[str, Any]) -> SparseMlaModel:
    """The model that `config` (the content of config.json) describes, with the field names of DeepSeek-V3.2 and GLM-5.x.

    Raises ModelConfigError naming the field that is missing or wrong, and for models that vLLM refuses to serve with HiSparse.
    """
    if str(config.get("model_type", "")).startswith("deepseek_v4"):
        raise ModelConfigError("model_type deepseek_v4: vLLM does not support DeepSeek V4 with HiSparse, up to 0.33")
    if config.get("index_topk") is None:
        nested = config.get("text_config")
        where = ", or has it in text_config, where vLLM does not look" if isinstance(nested, Mapping) else ""
        raise ModelConfigError(
            f"config.json has no 'index_topk'{where}: HiSparse is only supported for DSA models with index_topk,"
            " whose lightning indexer picks the top-K tokens (GLM-5.x, DeepSeek-V3.2)"
        )
    layer_types = config.get("layer_types")
    is_hybrid = isinstance(layer_types, list) and "linear_attention" in layer_types
    if is_hybrid or config.get("linear_attn_config") is not None:
        raise ModelConfigError(
            "config.json has layers with linear attention beside sparse MLA (GLM-5.3-Flash): up to 0.33, vLLM cannot lay out"
            " their caches with HiSparse"
        )
    num_hidden_layers = whole_number(config, "num_hidden_layers", maximum=MOST_LAYERS)
    return SparseMlaModel(
        model_type=str(config.get("model_type", "")),
        num_hidden_layers=num_hidden_layers,
        num_mtp_layers=whole_number(config, "num_nextn_predict_layers", minimum=0, maximum=MOST_LAYERS, default=0),
        kv_lora_rank=whole_number(config, "kv_lora_rank"),
        qk_rope_head_dim=whole_number(config, "qk_rope_head_dim", minimum=0),
        index_topk=whole_number(config, "index_topk"),
        index_head_dim=whole_number(config, "index_head_dim"),
        index_kpool=whole_number(config, "index_kpool", default=1),
        max_position_embeddings=whole_number(config, "max_position_embeddings"),
        owns_indexer=indexer_owners(config, num_layers=num_hidden_layers),
    )
