"""Slots of the offload tier by content, and the order in which they make room.

Whatever has the lowest rank goes first. A request that ends ranks its pages anew, from the tail, so that the head of a prefix,
which others may share, makes room last. Until then a page ranks by when it was stored; since vLLM 0.33 by when its request first
used the tier, from the tail too, so that a long prompt does not push out its own head.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from hisparse_runtime.policy.prefix import PageNames

Rank = tuple[int, int]
_Entry = tuple[Rank, bytes]
_FEW = 64


@dataclass(slots=True)
class Slot:
    number: int
    rank: Rank
    num_readers: int = 0
    is_written: bool = False

    @property
    def is_idle(self) -> bool:
        return self.is_written and self.num_readers == 0


@dataclass(slots=True, eq=False)
class Usage:
    """Pages of a request that it stored, found stored, or loaded. `rank` is given at the first of them."""

    names: PageNames
    pages: set[int] = field(default_factory=set)
    rank: int | None = None


class Slots:
    """Semantics follow vLLM's CPU pool (v1/kv_offload/cpu), one block per chunk, evicting by LRU."""

    def __init__(self, *, count: int, ranks_by_request: bool) -> None:
        self._slots: dict[bytes, Slot] = {}
        self._unused = list(range(count - 1, -1, -1))
        self._num_idle = 0
        self._last_rank = 0
        self._ranks_by_request = ranks_by_request
        self._order: list[_Entry] = []  # a heap; an entry counts only if it says the rank of its slot

    def __len__(self) -> int:
        """Slots with a page, or about to have one."""
        return len(self._slots)

    def find(self, name: bytes) -> Slot | None:
        return self._slots.get(name)

    def number_of(self, name: bytes) -> int:
        return self._slots[name].number

    def begin_read(self, name: bytes) -> None:
        """Keeps an idle slot, or one that is read already."""
        slot = self._slots[name]
        self._num_idle -= slot.is_idle
        slot.num_readers += 1

    def end_read(self, name: bytes) -> None:
        slot = self._slots[name]
        slot.num_readers -= 1
        self._num_idle += slot.is_idle

    def end_write(self, name: bytes) -> None:
        slot = self._slots[name]
        slot.is_written = True
        self._num_idle += slot.is_idle

    def note_use(self, usage: Usage, pages: Iterable[int]) -> None:
        """The request stores these pages, finds them stored, or loads them. Only the first use of each counts."""
        new = [page for page in pages if page not in usage.pages]
        usage.pages.update(new)
        if not new or not self._ranks_by_request:
            return
        number = self._rank_of(usage)
        for page in new:
            slot = self._slots.get(usage.names[page])
            if slot is not None and slot.rank < (number, -page):
                self._put(usage.names[page], slot, (number, -page))

    def end_use(self, usage: Usage) -> None:
        """The request has ended."""
        for page in sorted(usage.pages, reverse=True):
            slot = self._slots.get(usage.names[page])
            if slot is not None:
                self._put(usage.names[page], slot, self._next_rank())

    def take(self, usage: Usage, pages: Collection[int], *, keep: Collection[bytes]) -> list[int] | None:
        """Numbers of slots for pages that have none, without those of `keep`. None: not so many can make room."""
        if not self._make_room(len(pages) - len(self._unused), keep):
            return None
        numbers = [self._unused.pop() for _ in pages]
        for page, number in zip(pages, numbers, strict=True):
            rank = (self._rank_of(usage), -page) if self._ranks_by_request else self._next_rank()
            slot = self._slots[usage.names[page]] = Slot(number, rank)
            self._put(usage.names[page], slot, rank)
        return numbers

    def _make_room(self, count: int, keep: Collection[bytes]) -> bool:
        if count <= 0:
            return True
        if count > self._num_idle:
            return False
        passed: list[_Entry] = []
        found: list[_Entry] = []
        while self._order and len(found) < count:
            entry = heappop(self._order)
            slot = self._slots.get(entry[1])
            if slot is not None and slot.rank == entry[0]:
                (found if slot.is_idle and entry[1] not in keep else passed).append(entry)
        is_enough = len(found) == count
        for entry in passed if is_enough else passed + found:
            heappush(self._order, entry)
        if is_enough:
            self._num_idle -= count
            self._unused.extend(self._slots.pop(name).number for _, name in found)
        return is_enough

    def _put(self, name: bytes, slot: Slot, rank: Rank) -> None:
        slot.rank = rank
        heappush(self._order, (rank, name))
        if len(self._order) > 2 * len(self._slots) + _FEW:
            self._order = [(slot.rank, name) for name, slot in self._slots.items()]
            heapify(self._order)

    def _rank_of(self, usage: Usage) -> int:
        if usage.rank is None:
            usage.rank = self._next_rank()[0]
        return usage.rank

    def _next_rank(self) -> Rank:
        self._last_rank += 1
        return self._last_rank, 0
