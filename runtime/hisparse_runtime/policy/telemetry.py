"""What can be read at any moment without counting: pages by state, requests by residency class, and what has happened."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class PageState(IntEnum):
    """Life of a page in one request. The picture is in the package's docstring."""

    DIRTY = 0  # only the device has it
    PENDING = 1  # a copy between device and host is under way
    CLEAN_PINNED = 2  # the host has it too; its frame is held
    UNPINNED = 3  # its frame may be taken at any time; read in place until then
    HOST_ONLY = 4  # read through the hot region


# As plain numbers for arrays of states: comparing those with a member costs ten times as much.
DIRTY, PENDING, CLEAN_PINNED, UNPINNED, HOST_ONLY = (int(state) for state in PageState)


class ResidencyClass(StrEnum):
    """FULL: every page is on the device. NONE: of the pages that the host has, none is. MIXED: both kinds exist."""

    FULL = "full"
    MIXED = "mixed"
    NONE = "none"


# Looking a member up in its class costs more than what it is needed for.
FULL, MIXED, NONE = ResidencyClass


@dataclass(slots=True)
class ResidencyCounts:
    """Pages (by PageState) and classes of the requests that hold memory now; hot regions likewise. The rest counts since start.

    `deferred_by_device`, `deferred_by_host`: refused allocations of waiting requests, by the pool that was too full.
    """

    pages: list[int] = field(default_factory=lambda: [0] * len(PageState))
    requests: dict[ResidencyClass, int] = field(default_factory=lambda: dict.fromkeys(ResidencyClass, 0))
    hot_regions: int = 0
    lost_pages: int = 0
    adopted_pages: int = 0
    written_back_pages: int = 0
    deferred_by_device: int = 0
    deferred_by_host: int = 0
