"""Where every page of every request lives: block pools, page states, residency, prefix cache.

Works with block ids only: no arrays of KV, no engine types, no clock. May import geometry, nothing above.
"""

from hisparse_runtime.policy.block_pool import BlockPool, PoolExhaustedError
from hisparse_runtime.policy.integrity import IntegrityError, check_integrity
from hisparse_runtime.policy.limits import Limits, PoolTooSmallError, plan_limits
from hisparse_runtime.policy.page_table import PageState, PageTable, ResidencyClass
from hisparse_runtime.policy.prefix import extend_page_hashes
from hisparse_runtime.policy.residency import Residency
from hisparse_runtime.policy.transfers import CopyDirection, IndexerCopy, WriteBack

__all__ = [
    "BlockPool",
    "CopyDirection",
    "IndexerCopy",
    "IntegrityError",
    "Limits",
    "PageState",
    "PageTable",
    "PoolExhaustedError",
    "PoolTooSmallError",
    "Residency",
    "ResidencyClass",
    "WriteBack",
    "check_integrity",
    "extend_page_hashes",
    "plan_limits",
]
