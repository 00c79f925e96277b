"""A pool of equal blocks with reference counts and one free queue."""

from collections import OrderedDict
from collections.abc import Callable, Iterator


class PoolExhaustedError(RuntimeError):
    """More blocks were asked for than are free; callers check `num_free` first."""


class BlockPool:
    """Hands out block ids. Block 0 is the null block: never handed out, so 0 means "no block" in every table.

    A block is held (references > 0) or free. A free block may be *kept*: its content is still of use to somebody, so it
    is handed out last, oldest first, and `on_reuse` is told when that happens.

        head                                             tail
        [ plain free ... plain free | kept oldest ... kept newest ]
          handed out first                    handed out last
    """

    def __init__(self, *, name: str, num_blocks: int, on_reuse: Callable[[int], None]) -> None:
        self.name = name
        self.num_blocks = num_blocks
        self._references = [0] * num_blocks
        # An ordered dict is a queue that also gives up any member in O(1).
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._kept: set[int] = set()
        self._on_reuse = on_reuse

    def take(self, count: int) -> list[int]:
        """`count` blocks with one reference each. All or nothing: raises PoolExhaustedError and takes none."""
        if count > len(self._free):
            raise PoolExhaustedError(f"{self.name} pool: {count} blocks asked for, {len(self._free)} of {self.num_usable} free")
        taken = []
        for _ in range(count):
            block, _nothing = self._free.popitem(last=False)
            self._references[block] = 1
            taken.append(block)
            if block in self._kept:
                self._kept.discard(block)
                self._on_reuse(block)
        return taken

    def retain(self, block: int) -> None:
        """One more holder. A kept block becomes a held one again."""
        if self._references[block] == 0:
            del self._free[block]
            self._kept.discard(block)
        self._references[block] += 1

    def release(self, block: int, *, keep: bool = False) -> None:
        """One holder less. The last one decides whether the content is kept."""
        assert self._references[block] > 0, f"{self.name} pool: block {block} is released but nobody holds it"
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free[block] = None
            if keep:
                self._kept.add(block)
            else:
                self._free.move_to_end(block, last=False)

    def touch(self, block: int) -> None:
        """A kept block was of use: it is handed out after all others."""
        if block in self._kept:
            self._free.move_to_end(block)

    def drop(self, block: int) -> None:
        """The content of a kept block is of no use any more."""
        assert block in self._kept, f"{self.name} pool: block {block} is dropped but not kept"
        self._kept.discard(block)
        self._free.move_to_end(block, last=False)

    @property
    def num_usable(self) -> int:
        """All blocks but the null block."""
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out now, kept ones included."""
        return len(self._free)

    @property
    def num_held(self) -> int:
        return self.num_usable - len(self._free)

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    def references(self, block: int) -> int:
        return self._references[block]

    def is_kept(self, block: int) -> bool:
        return block in self._kept

    def free_blocks(self) -> Iterator[int]:
        """In the order in which they would be handed out."""
        return iter(self._free)
