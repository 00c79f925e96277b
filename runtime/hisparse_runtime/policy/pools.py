"""Everything that the parts of the policy share: the pools, the frames over the device pool, and the requests' tables."""

from hisparse_runtime.policy.block_pool import BlockPool
from hisparse_runtime.policy.frames import Frames
from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.settings import PolicySettings
from hisparse_runtime.policy.telemetry import HOST_ONLY, UNPINNED, ResidencyCounts


class Pools:
    """`tables` are the requests that hold memory, by id; a table also has a number, under which it reads frames."""

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self.totals = ResidencyCounts()
        self.frames = Frames(
            num_groups=settings.num_groups, num_device_blocks=settings.num_device_blocks, on_lost=self._lose_pages
        )
        self.device = BlockPool(name="device", num_blocks=settings.num_device_blocks, on_taken=self.frames.on_taken)
        self.host = BlockPool(name="host", num_blocks=settings.num_host_blocks)
        self.tables: dict[str, PageTable] = {}
        self._next_hot_grant = 1
        self._numbered: list[PageTable | None] = [None]
        self._free_numbers: list[int] = []

    def open_table(self, request_id: str, names: PageNames) -> PageTable:
        if not self._free_numbers:
            self._free_numbers.append(len(self._numbered))
            self._numbered.append(None)
        table = PageTable(request_id=request_id, number=self._free_numbers.pop(), names=names, totals=self.totals)
        self._numbered[table.number] = table
        self.tables[request_id] = table
        return table

    def grant_hot(self, table: PageTable, blocks: Blocks) -> None:
        table.hot = blocks.reshape(self.settings.num_groups, self.settings.hot_blocks_per_group)
        table.hot_grant = self._next_hot_grant
        self._next_hot_grant += 1
        self.totals.hot_regions += 1

    def close_table(self, table: PageTable) -> None:
        """It reads no frame any more."""
        table.leave()
        del self.tables[table.request_id]
        self._numbered[table.number] = None
        self._free_numbers.append(table.number)

    def _lose_pages(self, number: int, pages: list[int]) -> None:
        """The pool took the frames of these pages: in all groups, and for every reader."""
        table = self._numbered[number]
        assert table is not None, f"table {number} is closed but reads pages {pages}"
        table.move(pages, UNPINNED, HOST_ONLY)
        table.drop_frames(pages)
        table.hot_required = True
        self.totals.lost_pages += len(pages)
