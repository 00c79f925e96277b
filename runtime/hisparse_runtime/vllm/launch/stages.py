"""How far an engine is, from facts that can be measured from outside: its log lines change with every release.

vLLM imports (STARTING), starts its engine core and workers, which read the weights (LOADING), fills and pins the pools in
host memory (PINNING; up to 0.32 twice, once for profiling), captures graphs (WARMING), and answers (SERVING). An engine
without pools goes from LOADING to SERVING: what it does last shows nowhere.
"""

from dataclasses import dataclass
from enum import StrEnum

# Less than this of the pools can be queues between processes, or NCCL's.
_BEGUN_RATIO = 0.05
_FULL_RATIO = 0.99
# Between the pool of profiling and the real one there is none.
_RELEASED_RATIO = 0.5


class Stage(StrEnum):
    """DRAINING: requests that run still finish. STOPPING: none can be running any more."""

    PREFLIGHT = "preflight"
    STARTING = "starting"
    LOADING = "loading"
    PINNING = "pinning"
    WARMING = "warming"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinning:
    """How far host pools are filled. `passes`: how often they were full, each time anew."""

    planned_bytes: int
    pinned_bytes: int = 0
    passes: int = 0
    is_full: bool = False

    @property
    def has_begun(self) -> bool:
        return self.planned_bytes > 0 and (self.passes > 0 or self.pinned_bytes >= _BEGUN_RATIO * self.planned_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`num_processes`: of the engine, 0 before it is started. `is_answering`: it has answered for the served model."""

    num_processes: int
    pinning: Pinning
    is_answering: bool = False
    is_draining: bool = False
    is_asked_to_stop: bool = False
    has_ended: bool = False


def stage_of(facts: Facts) -> Stage:
    """The one stage that an engine with these facts is in."""
    if facts.has_ended or (facts.is_asked_to_stop and not facts.is_answering):
        return Stage.STOPPING
    if facts.is_answering:
        return Stage.DRAINING if facts.is_draining or facts.is_asked_to_stop else Stage.SERVING
    if facts.pinning.is_full:
        return Stage.WARMING
    if facts.pinning.has_begun:
        return Stage.PINNING
    if facts.num_processes > 1:
        return Stage.LOADING
    return Stage.STARTING if facts.num_processes else Stage.PREFLIGHT


def pinning_after(before: Pinning, *, pinned_bytes: int) -> Pinning:
    """The state once `pinned_bytes` are measured."""
    full_bytes = _FULL_RATIO * before.planned_bytes
    if before.planned_bytes and not before.is_full and pinned_bytes >= full_bytes:
        passes, is_full = before.passes + 1, True
    else:
        passes, is_full = before.passes, before.is_full and pinned_bytes >= _RELEASED_RATIO * before.planned_bytes
    return Pinning(planned_bytes=before.planned_bytes, pinned_bytes=pinned_bytes, passes=passes, is_full=is_full)
