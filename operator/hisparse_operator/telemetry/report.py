"""What engine pods answer. It comes over the network, so everything in it is bounded."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

PATH = "/hisparse/residency"
PROGRESS_PATH = "/hisparse/progress"

# 8 PiB: what 256 pods report still sums up to an integer of the API.
_Count = Annotated[int, Field(ge=0, le=1 << 53)]
_Name = Annotated[str, Field(max_length=253)]


class _Part(BaseModel):
    """Keys that a newer engine adds are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class EngineReport(_Part):
    type: _Name
    version: _Name
    model: _Name
    uptime_seconds: NonNegativeFloat


class RequestsReport(_Part):
    running: _Count
    waiting: _Count
    full: _Count
    mixed: _Count
    none: _Count


class PagesReport(_Part):
    dirty: _Count
    pending: _Count
    clean_pinned: _Count
    unpinned: _Count
    host_only: _Count


class PoolReport(_Part):
    capacity_bytes: _Count
    used_bytes: _Count


class HotReport(_Part):
    hits: _Count
    misses: _Count


class ProgressReport(_Part):
    """How far a pod is that does not serve yet. `pinned_bytes`: of the host pools that it is to have."""

    stage: _Name
    pinned_bytes: _Count
    planned_pinned_bytes: _Count

    @property
    def pinned_percent(self) -> int:
        """In tens: the next ten is worth a new status, a few bytes more are not."""
        return 10 * (10 * self.pinned_bytes // self.planned_pinned_bytes) if self.planned_pinned_bytes else 0


class ResidencyReport(_Part):
    """One pod at one moment."""

    engine: EngineReport
    requests: RequestsReport
    pages: PagesReport
    host_pool: PoolReport
    device_pool: PoolReport
    offload: PoolReport
    hot: HotReport
