"""The offload tier: where vLLM's OffloadingConnector keeps the indexer keys of cached prefixes in host memory."""

from dataclasses import dataclass

from hisparse_runtime.capacity.units import round_up
from hisparse_runtime.geometry import ModelGeometry

_CHUNK_ALIGNMENT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadTier:
    """One data-parallel replica's tier: `num_chunks` pages of indexer keys."""

    cpu_bytes_to_use: int
    chunk_bytes: int
    page_tokens: int

    @property
    def num_chunks(self) -> int:
        return self.cpu_bytes_to_use // self.chunk_bytes

    @property
    def tokens(self) -> int:
        return self.num_chunks * self.page_tokens

    @property
    def bytes_per_token(self) -> float:
        return self.chunk_bytes / self.page_tokens


def offload_chunk_bytes(geometry: ModelGeometry, *, tensor_parallel_size: int) -> int:
    """Bytes of one page of indexer keys: with HiSparse each tensor-parallel rank stores its own copy."""
    return round_up(geometry.indexer_page_bytes * tensor_parallel_size, to_bytes=_CHUNK_ALIGNMENT_BYTES)
