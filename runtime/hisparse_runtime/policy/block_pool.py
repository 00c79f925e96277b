"""A pool of equal blocks: who holds one, which are free, and what free ones still contain."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hisparse_runtime.policy.free_queue import Blocks, FreeQueue
from hisparse_runtime.policy.prefix import PageNames, PrefixIndex


class PoolExhaustedError(RuntimeError):
    """More blocks were asked for than are free; callers check `num_free` first."""


class BlockPool:
    """Hands out block ids. Block 0 is the null block: never handed out, so 0 means "no block" in every table.

    A block is free when nobody holds it. A free block with a name still has content that a prefix hit may bring back; it waits at
    the tail, while blocks without a name go to the head. `on_taken` is told which blocks are handed out anew.
    """

    def __init__(self, *, name: str, num_blocks: int, on_taken: Callable[[Blocks], None] | None = None) -> None:
        self.name = name
        self.num_blocks = num_blocks
        self.holders: NDArray[np.int32] = np.zeros(num_blocks, dtype=np.int32)
        self.index = PrefixIndex(num_blocks)
        self.queue = FreeQueue(num_blocks)
        self.num_cached = 0  # free blocks with a name
        self._is_named = np.zeros(num_blocks, dtype=np.bool_)
        self._on_taken = on_taken

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out now, those with content included."""
        return self.queue.num_free

    @property
    def num_usable(self) -> int:
        """All blocks but the null block."""
        return self.num_blocks - 1

    @property
    def num_held(self) -> int:
        return self.num_usable - self.num_free

    def take(self, count: int) -> Blocks:
        """`count` blocks with one holder each. Raises PoolExhaustedError and takes none if there are not so many."""
        if count > self.num_free:
            raise PoolExhaustedError(f"{self.name} pool: {count} blocks asked for, {self.num_free} of {self.num_usable} are free")
        blocks = self.queue.pop(count)
        if self.num_cached:
            is_named = self._is_named[blocks]
            if is_named.any():
                self._forget(blocks[is_named])
        self.holders[blocks] = 1
        if self._on_taken is not None and count:
            self._on_taken(blocks)
        return blocks

    def hold(self, blocks: Blocks) -> None:
        """One more holder for each of `blocks` (all different), free ones included."""
        held = self.holders[blocks]
        is_free = held == 0
        if is_free.any():
            free = blocks[is_free]
            self.queue.remove(free)
            self.num_cached -= int(np.count_nonzero(self._is_named[free]))
        self.holders[blocks] = held + 1

    def release(self, blocks: Blocks) -> None:
        """One holder less for each of `blocks` (all different). Those that become free keep the order of `blocks`: at the tail if
        they have a name, else at the head."""
        free = self._let_go(blocks)
        if len(free):
            is_named = self._is_named[free]
            if is_named.any():
                self.num_cached += int(np.count_nonzero(is_named))
                self.queue.prepend(free[~is_named])
                self.queue.append(free[is_named])
            else:
                self.queue.prepend(free)

    def release_to_tail(self, blocks: Blocks) -> None:
        """As `release`, but they are handed out last whether or not they have a name: somebody still reads them."""
        free = self._let_go(blocks)
        if len(free):
            self.queue.append(free)

    def publish(self, names: list[bytes], blocks: list[int]) -> None:
        """From now on a prefix hit finds the pages of these names in `blocks`."""
        self._is_named[blocks] = True
        self.index.add(names, blocks)

    def find(self, names: PageNames, *, max_pages: int) -> Blocks:
        """Blocks of the longest prefix of at most `max_pages` pages."""
        found = []
        for page in range(min(max_pages, names.num_full)):
            block = self.index.find(names[page])
            if block is None:
                break
            found.append(block)
        return np.array(found, dtype=np.int32)

    def is_named(self, block: int) -> bool:
        return bool(self._is_named[block])

    def count_free(self, blocks: Blocks) -> int:
        """How many of `blocks` nobody holds: holding them takes them out of the free ones."""
        return int(np.count_nonzero(self.holders[blocks] == 0))

    def _forget(self, named: Blocks) -> None:
        self._is_named[named] = False
        self.num_cached -= len(named)
        self.index.forget(named.tolist())

    def _let_go(self, blocks: Blocks) -> Blocks:
        left = self.holders[blocks] - 1
        self.holders[blocks] = left
        if not left.any():
            return blocks
        assert left.min() >= 0, f"{self.name} pool: nobody holds one of the released blocks {blocks.tolist()}"
        free: Blocks = blocks[left == 0]
        return free
