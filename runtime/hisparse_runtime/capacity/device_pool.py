"""The device pool as vLLM plans it: what one request takes of it, whether the longest fits, and how many run side by side.

admitted     | indexer pages of the whole context | G x pages in flight  | hot region |      taken at once, or the request waits
steady       | indexer pages of the whole context | G x two tail pages   | hot region |      once it reads from the host
ordinary     | pages of the whole context, latents and keys together     |                    without HiSparse
"""

from collections.abc import Callable
from dataclasses import dataclass

from hisparse_runtime.capacity.errors import DeviceMemoryError, FieldNames
from hisparse_runtime.capacity.hot_region import HotRegion
from hisparse_runtime.capacity.units import human_bytes, round_up
from hisparse_runtime.geometry import ModelGeometry, VllmVersion

NULL_BLOCKS = 1
# A step in flight may still be writing them, so they never leave the GPU.
ACTIVE_TAIL_PAGES = 2
_PLAIN_FORMATS = frozenset({"bfloat16", "fp8"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBlocks:
    """Device blocks of one request. Resident and hot blocks are counted over all groups."""

    indexer: int
    resident_admitted: int
    resident_steady: int
    hot: int

    @property
    def admitted(self) -> int:
        return self.indexer + self.resident_admitted + self.hot

    @property
    def steady(self) -> int:
        return self.indexer + self.resident_steady + self.hot


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePool:
    """Sizes of one GPU's pool. Block 0 is the null block. `ordinary_block_tokens`: of a block without HiSparse."""

    geometry: ModelGeometry
    version: VllmVersion
    hot: HotRegion
    kv_bytes: int
    in_flight_tokens: int
    ordinary_block_tokens: int

    @property
    def num_blocks(self) -> int:
        return self.kv_bytes // self.geometry.device_block_bytes

    @property
    def ordinary_block_bytes(self) -> int:
        """A block of `ordinary_block_tokens` without HiSparse."""
        return ordinary_block_bytes(self.geometry, version=self.version, block_tokens=self.ordinary_block_tokens)

    def request(self, tokens: int) -> RequestBlocks:
        """Blocks of a request of `tokens` tokens."""
        geometry = self.geometry
        window = min(self.in_flight_tokens, tokens) if self.version.admits_by_window else tokens
        pages = geometry.pages(window)
        return RequestBlocks(
            indexer=geometry.pages(tokens),
            resident_admitted=geometry.num_groups * pages,
            resident_steady=geometry.num_groups * min(pages, ACTIVE_TAIL_PAGES),
            hot=self.hot.blocks_per_request,
        )

    def generic_concurrency(self, tokens: int) -> float:
        """Requests of `tokens` tokens when each is counted at its admission: what start-up logs first, and too few."""
        return self.num_blocks / self.request(tokens).admitted

    def steady_concurrency(self, tokens: int) -> float:
        """Requests of `tokens` tokens when all but one read from the host and one is being admitted."""
        request = self.request(tokens)
        if self.num_blocks < request.admitted:
            return self.num_blocks / request.admitted
        return 1 + (self.num_blocks - request.admitted) / request.steady

    def ordinary_concurrency(self, tokens: int) -> float:
        """Requests of `tokens` tokens in a pool of the same bytes without HiSparse."""
        return self.kv_bytes // self.ordinary_block_bytes / -(-tokens // self.ordinary_block_tokens)

    def needed_bytes(self, tokens: int) -> int:
        """KV memory with which vLLM starts for requests of up to `tokens` tokens."""
        geometry = self.geometry
        if self.version.checks_all_device_groups:
            return (self.request(tokens).admitted + NULL_BLOCKS) * geometry.device_block_bytes
        # 0.30 checks the indexer's pages against what is left without one page of everything
        return geometry.pages(tokens) * geometry.indexer_page_bytes + geometry.ordinary_block_bytes

    def holds_one(self, tokens: int) -> bool:
        """Whether max_model_len -1 may settle on `tokens`."""
        if self.version.checks_all_device_groups:
            return self.needed_bytes(tokens) <= self.kv_bytes
        left_blocks = (self.kv_bytes - self.geometry.ordinary_block_bytes) // self.geometry.device_block_bytes
        return left_blocks >= self.request(tokens).admitted


def ordinary_block_bytes(geometry: ModelGeometry, *, version: VllmVersion, block_tokens: int) -> int:
    """A block of `block_tokens` tokens in a GPU's pool without HiSparse: latents and indexer keys of all layers."""
    block_bytes = geometry.ordinary_block_bytes * block_tokens // geometry.page_tokens
    is_padded = version.pads_ordinary_blocks and geometry.cache_format.name in _PLAIN_FORMATS
    return round_up(block_bytes, to_bytes=geometry.row_bytes) if is_padded else block_bytes


def check_device_pool(pool: DevicePool, *, max_model_len: int, names: FieldNames) -> None:
    """Raises DeviceMemoryError when vLLM would not start because one request of `max_model_len` tokens does not fit."""
    needed_bytes = pool.needed_bytes(max_model_len)
    if needed_bytes <= pool.kv_bytes:
        return
    request, geometry = pool.request(max_model_len), pool.geometry
    longest = longest_that(lambda tokens: pool.needed_bytes(tokens) <= pool.kv_bytes, most=max_model_len)
    lower = f", lower {names.max_model_len} to {longest:,}" if longest else ""
    window = f", or lower {names.max_num_batched_tokens}" if request.resident_admitted > request.indexer else ""
    found = f"{pool.num_blocks:,} blocks of {human_bytes(geometry.device_block_bytes)}"
    parts = (
        f"{request.indexer:,} indexer pages, {geometry.num_groups} x {request.resident_admitted // geometry.num_groups:,}"
        f" resident pages, a hot region of {request.hot:,}"
    )
    raise DeviceMemoryError(
        f"GPU KV memory {human_bytes(pool.kv_bytes)} has {found}; one request of {names.max_model_len} {max_model_len:,} needs"
        f" {request.admitted:,} and the null block ({parts}): raise {names.gpu_kv} to at least {human_bytes(needed_bytes)}"
        f"{lower}{window}"
    )


def longest_that(fits: Callable[[int], bool], *, most: int) -> int:
    """The longest context of at most `most` tokens that fits, 0 for none; what fits must do so when shortened."""
    shortest, longest = 0, most
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        shortest, longest = (middle, longest) if fits(middle) else (shortest, middle - 1)
    return longest
