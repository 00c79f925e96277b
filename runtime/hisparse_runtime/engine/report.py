"""What the engine tells about itself: one consistent snapshot, taken between two steps."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from hisparse_runtime.engine.executor import ExecutorCounters
from hisparse_runtime.geometry import ModelGeometry
from hisparse_runtime.policy import BlockPool, HiSparseMemory, PageState, ResidencyClass
from hisparse_runtime.scheduling import Scheduler

SCHEMA = "hisparse.dev/residency/v1"
VERSION = version("hisparse-operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """`used` is held by requests, `cached` could be handed out but still holds something of use."""

    capacity_bytes: int
    used_bytes: int
    cached_bytes: int

    @property
    def used_ratio(self) -> float:
        return self.used_bytes / self.capacity_bytes if self.capacity_bytes else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    running: int
    waiting: int
    residency: dict[ResidencyClass, int]
    pages: dict[PageState, int]
    host_pool: PoolUse
    device_pool: PoolUse
    offload: PoolUse
    regions_in_use: int
    pending_transfers: int
    hits: int
    misses: int
    host_to_device_bytes: int
    mirror_bytes: int
    finished: int
    preemptions: int
    prompt_tokens: int
    generation_tokens: int
    prefix_queried_tokens: int
    prefix_hit_tokens: int

    def as_json(self, *, model: str, uptime_seconds: float) -> dict[str, Any]:
        """The body of /hisparse/residency."""
        return {
            "schema": SCHEMA,
            "engine": {"type": "Embedded", "version": VERSION, "model": model, "uptime_seconds": round(uptime_seconds, 3)},
            "requests": {
                "running": self.running,
                "waiting": self.waiting,
                **{residency.value: count for residency, count in self.residency.items()},
                "finished": self.finished,
            },
            "pages": {state.name.lower(): count for state, count in self.pages.items()},
            "host_pool": {
                "capacity_bytes": self.host_pool.capacity_bytes,
                "used_bytes": self.host_pool.used_bytes,
                "cached_bytes": self.host_pool.cached_bytes,
            },
            "device_pool": {"capacity_bytes": self.device_pool.capacity_bytes, "used_bytes": self.device_pool.used_bytes},
            "offload": {"capacity_bytes": self.offload.capacity_bytes, "used_bytes": self.offload.used_bytes},
            "hot": {
                "regions_in_use": self.regions_in_use,
                "hits": self.hits,
                "misses": self.misses,
                "host_to_device_bytes": self.host_to_device_bytes,
            },
            "mirror_bytes": self.mirror_bytes,
        }


def take_report(scheduler: Scheduler, memory: HiSparseMemory, *, executed: ExecutorCounters, geometry: ModelGeometry) -> Report:
    """Only between two steps. Nothing is counted for it."""
    totals, counted, pools = memory.totals, scheduler.counts, memory.pools
    # The offload tier has no holders: what it stores is all cached, and for it that is the use.
    used_slots = memory.tier.num_used if memory.tier is not None else 0
    return Report(
        running=len(scheduler.running),
        waiting=scheduler.num_waiting,
        residency=dict(totals.requests),
        pages={state: totals.pages[state] for state in PageState},
        host_pool=_pool_use(pools.host, geometry.host_page_bytes),
        device_pool=_pool_use(pools.device, geometry.device_block_bytes),
        offload=PoolUse(
            capacity_bytes=memory.settings.num_offload_blocks * geometry.indexer_page_bytes,
            used_bytes=used_slots * geometry.indexer_page_bytes,
            cached_bytes=0,
        ),
        regions_in_use=totals.hot_regions,
        pending_transfers=len(memory.transfers.pending),
        hits=executed.hits,
        misses=executed.misses,
        host_to_device_bytes=executed.host_to_device_bytes,
        mirror_bytes=executed.mirror_bytes,
        finished=counted.finished,
        preemptions=counted.preemptions,
        prompt_tokens=counted.prompt_tokens,
        generation_tokens=counted.generation_tokens,
        prefix_queried_tokens=counted.prefix_queried_tokens,
        prefix_hit_tokens=counted.prefix_hit_tokens,
    )


def _pool_use(pool: BlockPool, block_bytes: int) -> PoolUse:
    return PoolUse(
        capacity_bytes=pool.num_usable * block_bytes,
        used_bytes=pool.num_held * block_bytes,
        cached_bytes=pool.num_cached * block_bytes,
    )
