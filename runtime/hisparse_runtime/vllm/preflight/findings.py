"""What a check found: a reason for machines, how much it matters, and a text with numbers and the next step."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """REFUSED: the engine would fail, minutes later. WARNING: it starts, and not as planned. NOTE: done, or not looked at."""

    REFUSED = "refused"
    WARNING = "warning"
    NOTE = "note"


class Reason(StrEnum):
    """The reason of a condition, when the operator shows it: never renamed."""

    INVALID_PLAN = "InvalidPlan"
    HOST_MEMORY_LIMIT_TOO_SMALL = "HostMemoryLimitTooSmall"
    NODE_MEMORY_TOO_SMALL = "NodeMemoryTooSmall"
    NUMA_MEMORY_TOO_SMALL = "NumaMemoryTooSmall"
    NUMA_SPREAD = "NumaSpread"
    SHARED_MEMORY_TOO_SMALL = "SharedMemoryTooSmall"
    STALE_SHARED_MEMORY = "StaleSharedMemory"
    MEMLOCK_TOO_LOW = "MemlockTooLow"
    KERNEL_TOO_OLD = "KernelTooOld"
    HUGE_PAGES_RESERVED = "HugePagesReserved"
    NOT_ENOUGH_GPUS = "NotEnoughGpus"
    GPUS_NOT_CHECKED = "GpusNotChecked"
    WRONG_VLLM_VERSION = "WrongVllmVersion"
    MODEL_DIFFERS_FROM_PLAN = "ModelDiffersFromPlan"
    MODEL_NOT_COMPARED = "ModelNotCompared"
    KNOWN_BUGS = "KnownBugs"
    CHECK_FAILED = "CheckFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`message` is one line: numbers, and what to do."""

    reason: Reason
    severity: Severity
    message: str


def refused(reason: Reason, message: str) -> Finding:
    return Finding(reason=reason, severity=Severity.REFUSED, message=message)


def warning(reason: Reason, message: str) -> Finding:
    return Finding(reason=reason, severity=Severity.WARNING, message=message)


def note(reason: Reason, message: str) -> Finding:
    return Finding(reason=reason, severity=Severity.NOTE, message=message)
