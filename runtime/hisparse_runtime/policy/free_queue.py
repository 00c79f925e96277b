"""The order in which free blocks are handed out: a queue with two ends that also gives up any member.

The queue is a ring of block ids. A block that is taken out of the middle leaves a gap, since it knows its place. So every
operation is a few array operations on as many entries as blocks are moved.

        head                                     tail
    ..  | 17 | 4 | 0 | 30 | 12 | 0 | 8 | 5 |  ..          0: a gap
        handed out next          handed out last
"""

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[np.int32]
_GAP = 0  # the null block
_LOOK_AT_LEAST = 64


class FreeQueue:
    """Holds blocks 1 to `num_blocks` - 1 in that order at first."""

    __slots__ = ("_head", "_mask", "_places", "_ring", "_tail", "num_free")

    def __init__(self, num_blocks: int) -> None:
        capacity = 1 << (2 * num_blocks + _LOOK_AT_LEAST).bit_length()
        self._mask = capacity - 1
        self._ring: Blocks = np.zeros(capacity, dtype=np.int32)
        self._places = np.zeros(num_blocks, dtype=np.int64)  # by block, of those in the queue
        self._head = self._tail = 0
        self.num_free = 0
        self.append(np.arange(1, num_blocks, dtype=np.int32))

    def append(self, blocks: Blocks) -> None:
        """Handed out after all others, the first of `blocks` first."""
        count = len(blocks)
        self._make_room(count)
        self._write(self._tail, blocks)
        self._tail += count
        self.num_free += count

    def prepend(self, blocks: Blocks) -> None:
        """Handed out before all others, the first of `blocks` first."""
        count = len(blocks)
        self._make_room(count)
        self._head -= count
        self._write(self._head, blocks)
        self.num_free += count

    def remove(self, blocks: Blocks) -> None:
        """Takes `blocks`, which are in the queue, out of it."""
        self._ring[self._places[blocks] & self._mask] = _GAP
        self.num_free -= len(blocks)

    def pop(self, count: int) -> Blocks:
        """The `count` blocks whose turn it is; so many must be there."""
        entries = self._read(self._head, count)
        if entries.all():
            self._head += count
            self.num_free -= count
            return entries.copy()
        return self._pop_around_gaps(count)

    def in_order(self) -> Blocks:
        """All blocks of the queue, the one that is handed out next first."""
        entries = self._read(self._head, self._tail - self._head)
        blocks: Blocks = entries[entries != _GAP]
        return blocks

    def _pop_around_gaps(self, count: int) -> Blocks:
        parts = []
        missing = count
        while missing:
            look = min(max(missing, _LOOK_AT_LEAST), self._tail - self._head)
            entries = self._read(self._head, look)
            found = np.flatnonzero(entries)[:missing]
            self._head += look if len(found) < missing else int(found[-1]) + 1
            parts.append(entries[found])
            missing -= len(found)
        blocks = np.concatenate(parts)
        self.num_free -= count
        return blocks

    def _read(self, place: int, count: int) -> Blocks:
        start = place & self._mask
        end = start + count
        if end <= self._mask + 1:
            return self._ring[start:end]
        return np.concatenate((self._ring[start:], self._ring[: end - self._mask - 1]))

    def _write(self, place: int, blocks: Blocks) -> None:
        start, count = place & self._mask, len(blocks)
        end = start + count
        if end <= self._mask + 1:
            self._ring[start:end] = blocks
        else:
            split = self._mask + 1 - start
            self._ring[start:] = blocks[:split]
            self._ring[: end - self._mask - 1] = blocks[split:]
        self._places[blocks] = np.arange(place, place + count)

    def _make_room(self, count: int) -> None:
        """The ring is twice as long as there are blocks: only after as many removals as blocks are entries moved up."""
        if self._tail - self._head + count > self._mask + 1:
            blocks = self.in_order()
            self._tail = self._head + len(blocks)
            self._write(self._head, blocks)
