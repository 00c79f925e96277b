"""Where every page of every request lives."""

from hisparse_runtime.policy.allocation import Leftover, PrefixHit
from hisparse_runtime.policy.block_pool import BlockPool, PoolExhaustedError
from hisparse_runtime.policy.hisparse import HiSparseMemory
from hisparse_runtime.policy.integrity import IntegrityError, check_integrity
from hisparse_runtime.policy.memory import Admission, MemoryPolicy, Refusal
from hisparse_runtime.policy.offload import OffloadJob, OffloadTier
from hisparse_runtime.policy.ordinary import OrdinaryMemory
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.settings import TAIL_PAGES, PolicySettings
from hisparse_runtime.policy.step_changes import PageTransfer, StepChanges, TableChange
from hisparse_runtime.policy.telemetry import PageState, ResidencyClass, ResidencyCounts

__all__ = [
    "TAIL_PAGES",
    "Admission",
    "BlockPool",
    "HiSparseMemory",
    "IntegrityError",
    "Leftover",
    "MemoryPolicy",
    "OffloadJob",
    "OffloadTier",
    "OrdinaryMemory",
    "PageNames",
    "PageState",
    "PageTransfer",
    "PolicySettings",
    "PoolExhaustedError",
    "PrefixHit",
    "Refusal",
    "ResidencyClass",
    "ResidencyCounts",
    "StepChanges",
    "TableChange",
    "check_integrity",
]
