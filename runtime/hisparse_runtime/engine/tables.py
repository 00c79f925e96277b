"""The executor's own copy of the requests' tables: where each page is, and what the hot regions hold."""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from hisparse_runtime.kernels import HotRows
from hisparse_runtime.kernels.resolve import Indices
from hisparse_runtime.policy import StepChanges, TableChange

_FIRST_CAPACITY = 64


def _empty() -> Indices:
    return np.zeros(_FIRST_CAPACITY, dtype=np.int64)


@dataclass(slots=True, kw_only=True)
class RequestTables:
    """Block ids by page, `resident` by group and page (0: on the host only). Arrays are longer than the request.

    `hot_blocks` by group, `hot` by layer: every layer has its own indexer, so what it keeps in its slots is its own.
    """

    num_pages: int = 0
    host: Indices = field(default_factory=_empty)
    indexer: Indices = field(default_factory=_empty)
    resident: Indices
    hot_blocks: Indices
    hot: tuple[HotRows, ...] | None = None

    def apply(self, change: TableChange, *, hot_rows: int, num_layers: int) -> None:
        end = change.first_page + len(change.host)
        self._reserve(end)
        self.host[change.first_page : end] = change.host
        self.indexer[change.first_page : end] = change.indexer
        self.resident[:, change.moved] = change.resident
        self.num_pages = end
        if change.hot is not None:
            self.hot_blocks = change.hot.astype(np.int64)
            self.hot = tuple(HotRows(hot_rows) for _ in range(num_layers))

    def _reserve(self, num_pages: int) -> None:
        missing = num_pages - len(self.host)
        if missing > 0:
            missing = max(missing, len(self.host))
            self.host = np.pad(self.host, (0, missing))
            self.indexer = np.pad(self.indexer, (0, missing))
            self.resident = np.pad(self.resident, ((0, 0), (0, missing)))


class Tables:
    """Of all requests that have been in a batch and still hold memory."""

    def __init__(self, *, num_groups: int, num_layers: int, hot_rows: int, page_tokens: int) -> None:
        self._requests: dict[str, RequestTables] = {}
        self._num_groups = num_groups
        self._num_layers = num_layers
        self._hot_rows = hot_rows
        self._page_tokens = page_tokens

    def __getitem__(self, request_id: str) -> RequestTables:
        return self._requests[request_id]

    def update(self, changes: StepChanges, *, ended: Collection[str]) -> None:
        """Before the step runs. A request that has ended may be in it again, with tables of its own."""
        for request_id in ended:
            self._requests.pop(request_id, None)
        if len(changes.fresh_host_blocks):
            fresh = changes.fresh_host_blocks.astype(np.int64)
            for tables in self._requests.values():
                for hot in tables.hot or ():
                    hot.scrub(fresh, page_tokens=self._page_tokens)
        for request_id, change in changes.tables.items():
            if request_id not in self._requests:
                self._requests[request_id] = RequestTables(
                    resident=np.zeros((self._num_groups, _FIRST_CAPACITY), dtype=np.int64),
                    hot_blocks=np.zeros((self._num_groups, 0), dtype=np.int64),
                )
            self._requests[request_id].apply(change, hot_rows=self._hot_rows, num_layers=self._num_layers)
