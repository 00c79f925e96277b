"""The numbers that the policy works with. Where they come from (model, memory, flags) is not its concern."""

from dataclasses import dataclass

# A step in flight may still write them, so the last pages of a request never leave the device.
TAIL_PAGES = 2


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

    def pages(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens."""
        return -(-tokens // self.page_tokens)

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
