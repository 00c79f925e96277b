"""The numbers that the policy works with. Where they come from (model, memory, flags) is not its concern."""

from dataclasses import dataclass
from enum import StrEnum

# A step in flight may still write them, so the last pages of a request never leave the device.
TAIL_PAGES = 2


class Semantics(StrEnum):
    """Whose decisions to reproduce. With 0.33 came that

    - pages which accepted drafts complete can be found at once, with no step in flight too;
    - by priority, requests behind one that preempts itself are scheduled in the same step;
    - an import or load into blocks that a step in flight may still read starts when that step is done;
    - in the offload tier, pages rank by when their request first used it, from the tail;
    - a request that is admitted again after a preemption offers all of its pages to the tier again;
    - a store ends before a step that admits a request with any of its blocks, those of a prefix hit and of all groups included.
    """

    V0_32 = "0.32"
    V0_33 = "0.33"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """Block counts include each pool's null block (block 0, which is never handed out).

    `num_groups`: resident groups, and as many hot groups; a resident page takes one device block in each.
    `hot_blocks_per_group`: device blocks of one request's hot region in each hot group.
    `window_pages`: resident pages that admission counts at most (the tokens that may be in flight at once); later pages are
    expected to move to the host.
    `drops_last_hit_page`: speculation rewrites the end of a prefix hit, so the last matching page is computed again.
    """

    num_groups: int
    page_tokens: int
    num_device_blocks: int
    num_host_blocks: int
    hot_blocks_per_group: int
    window_pages: int
    max_model_len: int
    drops_last_hit_page: bool = False
    caches_prefixes: bool = True
    num_offload_blocks: int = 0
    semantics: Semantics = Semantics.V0_33

    def pages(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.page_tokens)

    @property
    def is_newest(self) -> bool:
        return self.semantics is Semantics.V0_33

    @property
    def hot_blocks(self) -> int:
        """Device blocks of one hot region, over all groups."""
        return self.num_groups * self.hot_blocks_per_group

    @property
    def watermark_blocks(self) -> int:
        """Fewer free device blocks than this is pressure: one more hot region must always fit."""
        return max(self.hot_blocks, self.num_device_blocks // 10)

    @property
    def max_transfers_per_step(self) -> int:
        """Copies to the host that one step may start."""
        return self.max_model_len // self.page_tokens
