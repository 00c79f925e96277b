"""One request's pages: where each one is, in which state, and what the worker knows of that."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hisparse_runtime.policy.frames import NO_FRAME, Numbers
from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.settings import TAIL_PAGES
from hisparse_runtime.policy.telemetry import (
    CLEAN_PINNED,
    DIRTY,
    FULL,
    HOST_ONLY,
    MIXED,
    NONE,
    PENDING,
    UNPINNED,
    PageState,
    ResidencyCounts,
)

_FIRST_CAPACITY = 64


class PageTable:
    """Arrays by page index; those named `_..` are longer than the request and used up to `num_pages`.

    `num_ready` pages from the start on are complete on the host, `num_published` of them can be found by others, and
    `publish_to` is where publication has to go on to (None: it has arrived). Pages up to `num_planned` were looked at for
    write-back; those that had to be left out are in `passed_over`. `stale` are pages below `num_synced` of which the worker does
    not know where they are now, some of them more than once.

    Pages that change are lists, of one page as a rule: it is set as a number, in a tenth of the time of an array of one.
    """

    __slots__ = (
        "_frames",
        "_host",
        "_indexer",
        "_states",
        "_valid",
        "counts",
        "hot",
        "hot_grant",
        "hot_required",
        "importing_tokens",
        "is_live",
        "leased_host",
        "names",
        "num_copies_recorded",
        "num_indexer_published",
        "num_pages",
        "num_planned",
        "num_published",
        "num_ready",
        "num_synced",
        "number",
        "pages_to_adopt",
        "passed_over",
        "publish_to",
        "request_id",
        "residency",
        "stale",
        "synced_hot_grant",
        "totals",
        "unpinned_below",
    )

    def __init__(self, *, request_id: str, number: int, names: PageNames, totals: ResidencyCounts) -> None:
        self.request_id = request_id
        self.number = number
        self.names = names
        self.is_live = True
        self.num_pages = 0
        self._host: Blocks = np.zeros(_FIRST_CAPACITY, dtype=np.int32)
        self._indexer: Blocks = np.zeros(_FIRST_CAPACITY, dtype=np.int32)
        self._frames: Numbers = np.zeros(_FIRST_CAPACITY, dtype=np.int32)
        self._states = np.zeros(_FIRST_CAPACITY, dtype=np.uint8)
        self._valid = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self.counts = [0] * len(PageState)  # by PageState
        self.totals = totals
        self.residency = FULL
        totals.requests[FULL] += 1
        # The hot region: [groups x blocks], None until it is granted; a number tells two grants of the same blocks apart.
        self.hot: Blocks | None = None
        self.hot_grant = 0
        self.synced_hot_grant = 0
        self.hot_required = False
        self.importing_tokens = 0
        self.num_ready = 0
        self.num_planned = 0
        self.passed_over: list[int] = []
        self.num_published = 0
        self.num_indexer_published = 0
        self.num_copies_recorded = 0
        self.publish_to: int | None = None
        self.leased_host: Blocks | None = None  # held after the request's end until its last copies are published
        self.pages_to_adopt = 0
        self.unpinned_below = 0  # clean pages below this one are unpinned, as far as the tail allowed
        self.num_synced = 0
        self.stale: list[int] = []

    @property
    def can_read_host(self) -> bool:
        return self.hot is not None

    @property
    def host(self) -> Blocks:
        """Of a page it never changes, and neither does its indexer block: parts of these may be handed on."""
        return self._host[: self.num_pages]

    @property
    def indexer(self) -> Blocks:
        return self._indexer[: self.num_pages]

    @property
    def frames(self) -> Numbers:
        """NO_FRAME for pages that are on the host only."""
        return self._frames[: self.num_pages]

    @property
    def states(self) -> NDArray[np.uint8]:
        """PageState values."""
        return self._states[: self.num_pages]

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Whether the host's copy is complete."""
        return self._valid[: self.num_pages]

    @property
    def has_changed(self) -> bool:
        """Whether the worker has to be told something."""
        return bool(self.stale) or self.num_synced < self.num_pages or self.hot_grant != self.synced_hot_grant

    @property
    def num_pinnable(self) -> int:
        """Pages before the tail: only those are ever unpinned."""
        return self.num_pages - TAIL_PAGES

    def pages_in(self, state: int) -> Numbers:
        """Ascending."""
        return np.flatnonzero(self.states == state).astype(np.int32)

    def append(self, *, host: Blocks, indexer: Blocks, frames: Numbers | None, is_valid: bool) -> None:
        """Pages at the end of the request: on the device about to be filled, or (`frames` None) on the host only."""
        start, count = self.num_pages, len(host)
        self._reserve(start + count)
        end = start + count
        self._host[start:end] = host
        self._indexer[start:end] = indexer
        self._frames[start:end] = NO_FRAME if frames is None else frames
        self._valid[start:end] = is_valid
        state = HOST_ONLY if frames is None else DIRTY
        self._states[start:end] = state
        self.num_pages = end
        self.counts[state] += count
        self.totals.pages[state] += count
        self._classify()

    def place(self, page: int, frame: int) -> None:
        """Gives a host-only page a frame that is about to be filled."""
        self._frames[page] = frame
        self._states[page] = DIRTY
        self._shift(HOST_ONLY, DIRTY, 1)

    def move(self, pages: list[int], before: int, after: int) -> None:
        """They go from one state to the next."""
        self._states[pages[0] if len(pages) == 1 else pages] = after
        self._shift(before, after, len(pages))

    def states_of(self, pages: Sequence[int]) -> list[int]:
        return list(map(self._states.item, pages))

    def frames_of(self, pages: Sequence[int]) -> list[int]:
        return list(map(self._frames.item, pages))

    def is_valid(self, page: int) -> bool:
        """Whether the host's copy is complete."""
        return bool(self._valid.item(page))

    def drop_frames(self, pages: list[int]) -> None:
        """The worker has to read these pages from the host from now on."""
        self._frames[pages[0] if len(pages) == 1 else pages] = NO_FRAME
        self._note_stale(pages)

    def adopt_frames(self, pages: list[int], frames: Numbers) -> None:
        """These pages are read in frames that somebody else filled."""
        self._frames[pages] = frames
        self._note_stale(pages)

    def mark_valid(self, pages: list[int]) -> None:
        self._valid[pages[0] if len(pages) == 1 else pages] = True

    def reset_valid(self, num_valid: int) -> None:
        """Exactly the first pages are complete on the host."""
        self._valid[: self.num_pages] = False
        self._valid[:num_valid] = True
        self.num_ready = num_valid

    def advance_ready(self) -> None:
        """Extends the ready prefix over pages that have become valid."""
        while self.num_ready < self.num_pages and self._valid.item(self.num_ready):
            self.num_ready += 1

    def take_moved(self) -> list[int]:
        """Pages whose place the worker does not know, ascending; it is told now."""
        pages = [*sorted(set(self.stale)), *range(self.num_synced, self.num_pages)]
        self.stale = []
        self.num_synced = self.num_pages
        return pages

    def leave(self) -> None:
        """The request ends or is preempted: its pages do not count any more."""
        self.is_live = False
        for state, count in enumerate(self.counts):
            self.totals.pages[state] -= count
        self.totals.requests[self.residency] -= 1
        self.totals.hot_regions -= self.can_read_host

    def _shift(self, before: int, after: int, count: int) -> None:
        counts = self.counts
        counts[before] -= count
        counts[after] += count
        if self.is_live:
            pages = self.totals.pages
            pages[before] -= count
            pages[after] += count
            self._classify()

    def _classify(self) -> None:
        counts = self.counts
        if not counts[HOST_ONLY]:
            residency = FULL
        elif counts[PENDING] or counts[CLEAN_PINNED] or counts[UNPINNED]:
            residency = MIXED
        else:
            residency = NONE
        if residency is not self.residency:
            self.totals.requests[self.residency] -= 1
            self.totals.requests[residency] += 1
            self.residency = residency

    def _note_stale(self, pages: list[int]) -> None:
        self.stale += [page for page in pages if page < self.num_synced]

    def _reserve(self, num_pages: int) -> None:
        if num_pages <= len(self._host):
            return
        capacity = max(num_pages, 2 * len(self._host))
        for name in ("_host", "_indexer", "_frames", "_states", "_valid"):
            grown = np.zeros(capacity, dtype=getattr(self, name).dtype)
            grown[: self.num_pages] = getattr(self, name)[: self.num_pages]
            setattr(self, name, grown)
