"""Layers -> groups -> block sizes: the pages that a request's KV consists of, and what one block must hold.

host block     | page of layer 0 | page of layer 1 | ...           |     every sparse-MLA layer: the truth
device block   | page of a resident or hot group's layers | padding |     one size for all uses: any block serves any
               | indexer page of all indexer layers       | padding |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hisparse_runtime.geometry.cache_format import CacheFormat, embedded_cache_format
from hisparse_runtime.geometry.config_fields import ModelConfigError
from hisparse_runtime.geometry.index_sharing import index_units
from hisparse_runtime.geometry.model import SparseMlaModel, read_model


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGeometry:
    """Sizes of a sparse-MLA model's KV cache. A *row* is one token's latent in one layer, a *page* is `page_tokens` tokens.

    `layers_per_group`: the layers of each resident group; a hot group has the same layers as its resident group.
    """

    model: SparseMlaModel
    cache_format: CacheFormat
    num_layers: int
    num_indexer_layers: int
    layers_per_group: tuple[int, ...]

    @property
    def page_tokens(self) -> int:
        return self.cache_format.page_tokens

    @property
    def row_bytes(self) -> int:
        """One token's latent (compressed KV and rotary part) in one layer."""
        return self.cache_format.row_bytes

    @property
    def num_groups(self) -> int:
        return len(self.layers_per_group)

    @property
    def host_page_bytes(self) -> int:
        """One page of latents over all layers: a block of the host pool."""
        return self.num_layers * self.cache_format.page_bytes

    @property
    def indexer_page_bytes(self) -> int:
        """One page of indexer keys over all layers that own an indexer: a block of the offload tier."""
        return self.num_indexer_layers * self.cache_format.indexer_page_bytes

    @property
    def device_block_bytes(self) -> int:
        """A block of the device pool holds a page of one resident or hot group, or of indexer keys: the largest decides.

        Rows are addressed across the whole pool, so blocks are whole layer pages apart.
        """
        page_bytes = self.cache_format.page_bytes
        return _round_up(max(max(self.layers_per_group) * page_bytes, self.indexer_page_bytes), page_bytes)

    @property
    def ordinary_block_bytes(self) -> int:
        """A block of the device pool without HiSparse: latents and indexer keys of all layers together."""
        return self.host_page_bytes + self.indexer_page_bytes

    def pages(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.page_tokens)


def lay_out(model: SparseMlaModel, cache_format: CacheFormat, *, with_mtp: bool) -> ModelGeometry:
    """Packs units (a leader and its followers, which share a selection and never part) into groups, in order, as vLLM does.

    A group takes units while its page is not larger than the indexer's, so that no block is much larger than its smallest use.
    Raises ModelConfigError when no layer owns an indexer.
    """
    owners = model.layers(with_mtp=with_mtp)
    num_indexer_layers = sum(owners)
    if num_indexer_layers == 0:
        raise ModelConfigError("config.json: index_topk_pattern leaves no layer with an indexer: HiSparse requires at least one")
    indexer_page_bytes = num_indexer_layers * cache_format.indexer_page_bytes
    groups = [0]
    for unit in index_units(owners):
        if groups[-1] and (groups[-1] + unit) * cache_format.page_bytes > indexer_page_bytes:
            groups.append(0)
        groups[-1] += unit
    return ModelGeometry(
        model=model,
        cache_format=cache_format,
        num_layers=len(owners),
        num_indexer_layers=num_indexer_layers,
        layers_per_group=tuple(groups),
    )


def embedded_geometry(config: Mapping[str, Any]) -> ModelGeometry:
    """Geometry of the embedded engine, in which every layer has its own indexer. Raises ModelConfigError."""
    model = read_model(config)
    if not all(model.owns_indexer):
        raise ModelConfigError(
            f"index_topk_freq is {config.get('index_topk_freq')!r}: the embedded engine has no layers that share an indexer;"
            " use 1 or leave it out"
        )
    return lay_out(model, embedded_cache_format(model), with_mtp=False)


def _round_up(size_bytes: int, to_bytes: int) -> int:
    return -(-size_bytes // to_bytes) * to_bytes
