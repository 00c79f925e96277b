"""Where every page of every request lives: pools of blocks, states of pages, the hybrid rule, prefix cache, offload tier.

Block ids only: no arrays of KV, no engine types, no clock. May import geometry and capacity, nothing above.

A page is `page_tokens` tokens of one request. Its latents have a host block, and on the device a *frame*: one block in each of
the G groups of layers, taken, read and given up as one. Its indexer keys always have a device block of their own.

             extend            materialise, once full       acknowledge                  unpin, with a hot region
    (none) --------> DIRTY ---------------------> PENDING -------------> CLEAN_PINNED ---------------> UNPINNED
                       ^   device only              both ends held          host has it, too               no longer held,
                       |                                                       ^                           read until the pool
        restore of the last imported page                  adopt: a copy is    |                           takes any of its blocks
                       |                                   still in its frame  |                                |
                     HOST_ONLY --------------------------------------------------+                              |
                       ^   no frame: read row by row through the hot region                                     |
                       `-------------------------------- lost, for all who read it -----------------------------'

Copies to the host are made ahead, while there is room, so under pressure nobody waits for one: a request asks for a hot region
(`residency.update`), gets it with a later allocation, and from then on its clean pages are free blocks that it still reads.

    page_table   one request                                           allocation   what a request needs, takes and gives back
    frames       device blocks of a page as one, and their readers     publication  what others may find of its pages
    block_pool   holders and names of blocks                           transfers    copies under way
    free_queue   who is handed out next                                residency    the hybrid rule, once per step and request
    hisparse     all of it, for a scheduler (memory.MemoryPolicy)      ordinary     the same without HiSparse
    offload      blocks by content, behind the device                  telemetry    what can be read at any moment
    tier_slots   where the tier keeps them, and who makes room

Lists that grow with the context are arrays, and an operation touches the pages that change state, in one go for all groups.
`check_integrity` recounts everything from the tables.
"""

from hisparse_runtime.policy.allocation import Leftover, PrefixHit
from hisparse_runtime.policy.block_pool import BlockPool, PoolExhaustedError
from hisparse_runtime.policy.hisparse import HiSparseMemory
from hisparse_runtime.policy.integrity import IntegrityError, check_integrity
from hisparse_runtime.policy.memory import Admission, MemoryPolicy, Refusal
from hisparse_runtime.policy.offload import OffloadJob, OffloadTier
from hisparse_runtime.policy.ordinary import OrdinaryMemory
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.settings import TAIL_PAGES, PolicySettings, Semantics
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
    "Semantics",
    "StepChanges",
    "TableChange",
    "check_integrity",
]
