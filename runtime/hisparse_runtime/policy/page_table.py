"""One request's pages: where each one's latents and indexer keys are, and in which state."""

from enum import IntEnum, StrEnum


class PageState(IntEnum):
    """Life of a page. Only UNPINNED pages can be taken from the device, so nothing is ever lost that the host does not have.

    DIRTY -> PENDING -> CLEAN_PINNED -> UNPINNED -> HOST_ONLY
      |         |            |              |           `- the pool handed the block out; read through the hot region
      |         |            |              `- reference dropped, still read in place
      |         |            `- host copy complete, device block held
      |         `- sealed, copy to the host under way
      `- being filled
    """

    DIRTY = 0
    PENDING = 1
    CLEAN_PINNED = 2
    UNPINNED = 3
    HOST_ONLY = 4


class ResidencyClass(StrEnum):
    FULL = "full"
    MIXED = "mixed"
    NONE = "none"


_NEXT = {
    PageState.DIRTY: PageState.PENDING,
    PageState.PENDING: PageState.CLEAN_PINNED,
    PageState.CLEAN_PINNED: PageState.UNPINNED,
    PageState.UNPINNED: PageState.HOST_ONLY,
}


class PageTable:
    """Block ids by page index. Every page has a host block and an indexer block; `resident` is 0 for host-only pages.

    `hot` are the blocks of the hot region (none or all of it); `hot_grant` tells two grants of the same blocks apart.
    """

    __slots__ = ("_counts", "clean", "host", "hot", "hot_grant", "indexer", "num_hit_pages", "num_sealed", "resident", "states")

    def __init__(self) -> None:
        self.host: list[int] = []
        self.resident: list[int] = []
        self.indexer: list[int] = []
        self.states: list[PageState] = []
        self.clean: set[int] = set()  # the CLEAN_PINNED pages, so that unpinning costs what changed, not the context length
        self.hot: tuple[int, ...] = ()
        self.hot_grant: int | None = None
        self.num_hit_pages = 0
        self.num_sealed = 0
        self._counts = [0] * len(PageState)

    @property
    def num_pages(self) -> int:
        return len(self.host)

    @property
    def can_read_host(self) -> bool:
        return self.hot_grant is not None

    def count(self, state: PageState) -> int:
        return self._counts[state]

    def append(self, *, host: int, resident: int, indexer: int) -> None:
        """A page on the device, about to be filled."""
        self._append(host=host, resident=resident, indexer=indexer, state=PageState.DIRTY)

    def append_hit(self, *, host: int, indexer: int) -> None:
        """A page of a cached prefix: complete, on the host only."""
        assert self.num_sealed == self.num_pages, "cached pages come before all others"
        self._append(host=host, resident=0, indexer=indexer, state=PageState.HOST_ONLY)
        self.num_hit_pages += 1
        self.num_sealed += 1

    def advance(self, page: int) -> PageState:
        """Moves a page to the next state of its life and returns it."""
        before = self.states[page]
        after = _NEXT[before]
        self.states[page] = after
        self._counts[before] -= 1
        self._counts[after] += 1
        if after is PageState.CLEAN_PINNED:
            self.clean.add(page)
        elif after is PageState.UNPINNED:
            self.clean.discard(page)
        elif after is PageState.HOST_ONLY:
            self.resident[page] = 0
        return after

    @property
    def residency(self) -> ResidencyClass:
        """FULL: every page is on the device. NONE: no sealed page is. MIXED: both kinds exist."""
        if self._counts[PageState.HOST_ONLY] == 0:
            return ResidencyClass.FULL
        return ResidencyClass.NONE if self._counts[PageState.HOST_ONLY] == self.num_sealed else ResidencyClass.MIXED

    def _append(self, *, host: int, resident: int, indexer: int, state: PageState) -> None:
        self.host.append(host)
        self.resident.append(resident)
        self.indexer.append(indexer)
        self.states.append(state)
        self._counts[state] += 1
