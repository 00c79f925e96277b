"""What changed with a step, in block ids, for an executor that keeps its own copy of the tables."""

from dataclasses import dataclass
from typing import NamedTuple

from hisparse_runtime.policy.frames import Numbers
from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.offload import OffloadJob


# Tuples are what is made for every request of a step: a frozen dataclass takes three times as long.
class TableChange(NamedTuple):
    """Of one request: pages from `first_page` on are new, with the host and indexer blocks of each; `moved` pages, old and new,
    are now at `resident` ([groups x moved], 0: on the host only). `hot` is the hot region ([groups x blocks]) if it is new."""

    first_page: int
    host: Blocks
    indexer: Blocks
    moved: Numbers
    resident: Blocks
    hot: Blocks | None


class PageTransfer(NamedTuple):
    """One page between its device blocks (one per group) and its host block. A restore runs before the forward pass, a write-back
    after it. To be acknowledged by `transfer_id`."""

    transfer_id: int
    request_id: str
    page: int
    device_blocks: Blocks
    host_block: int
    is_restore: bool


@dataclass(frozen=True, slots=True)
class StepChanges:
    """`tables` by request, those of the batch only: nobody else's are read. `fresh_host_blocks` were handed out since the step
    before: hot rows that name them are of an earlier content. `is_all_resident`: the batch reads nothing from the host.

    `jobs` are new ones of the offload tier; those in `flushed_jobs`, new or not, have to end before the forward pass.
    """

    tables: dict[str, TableChange]
    transfers: list[PageTransfer]
    fresh_host_blocks: Blocks
    is_all_resident: bool
    jobs: list[OffloadJob]
    flushed_jobs: list[int]
