"""Frames: the device blocks that hold one resident page, one block per group. They are taken, read and given up as one.

    table of request a:  page 0 | page 1 | page 2 ...              published prefix pages
                           |       |        |                        name of a page -+
                           v       v        v                                        |
    frames:              [f3]    [f8]     host only                                  |
                           |       `---------------------------- copies -------------+
                           `-> blocks 17, 18, 19 ... (one per group)

Readers of a frame that has no holder are told when the pool takes any of its blocks: they then read the page from the host.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hisparse_runtime.policy.block_pool import BlockPool
from hisparse_runtime.policy.by_name import ByName
from hisparse_runtime.policy.free_queue import Blocks

Numbers = NDArray[np.int32]
NO_FRAME = 0


def _distinct(numbers: Numbers) -> Numbers:
    """Each number once, ascending. There is at least one.

    Repeats beside each other go first, since sorting takes long: a page's blocks are given up, and taken, one behind the other.
    """
    return _without_repeats(np.sort(_without_repeats(numbers)))


def _without_repeats(numbers: Numbers) -> Numbers:
    is_other = np.empty(len(numbers), dtype=np.bool_)
    is_other[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=is_other[1:])
    return numbers[is_other]


class Frames:
    """Frame numbers are handed out again, so one names a page only as long as it is held, read, or a copy."""

    def __init__(self, *, num_groups: int, num_device_blocks: int, on_lost: Callable[[int, list[int]], None]) -> None:
        """`on_lost(reader, pages)`: the pool takes these pages of the reader's."""
        count = (num_device_blocks - 1) // num_groups + 1
        self.num_groups = num_groups
        self.blocks: Blocks = np.zeros((count, num_groups), dtype=np.int32)
        self.holders: Numbers = np.zeros(count, dtype=np.int32)
        self.copies: ByName[int] = ByName()  # name of a published page -> frame with its content
        self._frame_of = np.zeros(num_device_blocks, dtype=np.int32)  # by block
        self._unused: Numbers = np.arange(count - 1, 0, -1, dtype=np.int32)
        self._num_unused = count - 1
        self._copy_names: list[bytes | None] = [None] * count  # by frame
        # Nearly every frame has one reader, which two arrays hold; sharing a prefix makes more.
        self._reader: Numbers = np.zeros(count, dtype=np.int32)  # 0: none
        self._reader_page: Numbers = np.zeros(count, dtype=np.int32)
        self._more_readers: dict[int, list[tuple[int, int]]] = {}
        self._on_lost = on_lost

    def bind(self, blocks: Blocks) -> Numbers:
        """Frames with one holder each, of new blocks: [pages x groups]."""
        count = len(blocks)
        self._num_unused -= count
        frames = self._unused[self._num_unused : self._num_unused + count].copy()
        self.blocks[frames] = blocks
        self._frame_of[blocks] = frames[:, None]
        self.holders[frames] = 1
        return frames

    def hold(self, frames: Numbers, pool: BlockPool) -> None:
        """One more holder for each frame (all different)."""
        held = self.holders[frames]
        if not held.all():
            pool.hold(self.blocks[frames[held == 0]].ravel())
        self.holders[frames] = held + 1

    def release(self, frames: Numbers) -> Numbers:
        """One holder less. Returns those that nobody holds any more: their blocks, still held in the pool, are for the caller to
        release in an order of his, after `end`."""
        left = self.holders[frames] - 1
        self.holders[frames] = left
        ended: Numbers = frames[left == 0]
        return ended

    def unpin(
        self,
        frames: Numbers,
        pool: BlockPool,
        *,
        readers: Numbers | None = None,
        pages: Numbers | None = None,
        by_group: bool = False,
    ) -> None:
        """One holder less, and the blocks stay readable until the pool takes them; `readers` read them as `pages` of theirs.

        Blocks go to the tail page by page, or group by group.
        """
        free = self.release(frames)
        if len(free):
            blocks = self.blocks[free]
            pool.release_to_tail((blocks.T if by_group else blocks).ravel())
        if readers is not None:
            assert pages is not None
            self._add_readers(frames, readers, pages)

    def drop_reader(self, frames: Numbers, reader: int, pages: Numbers) -> None:
        """The reader stops reading these frames as these pages of its own."""
        is_first = (self._reader[frames] == reader) & (self._reader_page[frames] == pages)
        self._reader[frames[is_first]] = 0
        for frame, page in zip(frames[~is_first].tolist(), pages[~is_first].tolist(), strict=True):
            self._more_readers[frame].remove((reader, page))

    def record_copies(self, copies: list[tuple[bytes, int]]) -> None:
        """A prefix hit on the page of a name may read the frame, until the pool takes one of its blocks."""
        parts, name_of = self.copies.parts, self._copy_names
        for name, frame in copies:
            found = parts[name[0]]
            before = found.get(name)
            if before is not None:
                name_of[before] = None
            found[name] = frame
            name_of[frame] = name

    def on_taken(self, blocks: Blocks) -> None:
        """The pool handed out `blocks`: frames that they belonged to are lost, with all their other blocks."""
        frames = self._frame_of[blocks]
        if frames.any():
            frames = _distinct(frames)
            frames = frames[int(frames[0] == NO_FRAME) :]
            assert not self.holders[frames].any(), f"blocks of held frames are handed out: {frames[self.holders[frames] > 0]}"
            self._lose(frames)

    def end(self, frames: Numbers) -> None:
        """Frames without holder and reader whose blocks go back for other uses."""
        self._frame_of[self.blocks[frames]] = NO_FRAME
        parts, name_of = self.copies.parts, self._copy_names
        for frame in frames.tolist():
            name = name_of[frame]
            if name is not None:
                name_of[frame] = None
                del parts[name[0]][name]
        self._unused[self._num_unused : self._num_unused + len(frames)] = frames
        self._num_unused += len(frames)

    def readers(self) -> dict[int, set[tuple[int, int]]]:
        """frame -> (reader, page) of all who read it without holding it."""
        found = {
            int(frame): {(int(self._reader[frame]), int(self._reader_page[frame]))} for frame in np.flatnonzero(self._reader)
        }
        for frame, more in self._more_readers.items():
            found.setdefault(frame, set()).update(more)
        return {frame: readers for frame, readers in found.items() if readers}

    def frame_of_blocks(self) -> Numbers:
        """By block, for checks."""
        return self._frame_of

    @property
    def num_live(self) -> int:
        return len(self._unused) - self._num_unused

    def _add_readers(self, frames: Numbers, readers: Numbers, pages: Numbers) -> None:
        is_read = self._reader[frames] != 0
        if is_read.any():
            more = (frames[is_read].tolist(), readers[is_read].tolist(), pages[is_read].tolist())
            for frame, reader, page in zip(*more, strict=True):
                self._more_readers.setdefault(frame, []).append((reader, page))
            frames, readers, pages = frames[~is_read], readers[~is_read], pages[~is_read]
        self._reader[frames] = readers
        self._reader_page[frames] = pages

    def _lose(self, frames: Numbers) -> None:
        lost: dict[int, list[int]] = {}
        for reader, page in zip(self._reader[frames].tolist(), self._reader_page[frames].tolist(), strict=True):
            if reader:
                lost.setdefault(reader, []).append(page)
        for frame in frames.tolist() if self._more_readers else ():
            for reader, page in self._more_readers.pop(frame, ()):
                lost.setdefault(reader, []).append(page)
        self._reader[frames] = 0
        self.end(frames)
        for reader, pages in sorted(lost.items()):
            self._on_lost(reader, pages)
