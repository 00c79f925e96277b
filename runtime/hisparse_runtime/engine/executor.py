"""Runs a StepPlan: indexer copies, forward pass with resolved rows, write-backs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hisparse_runtime.engine.memory import KvMemory
from hisparse_runtime.engine.model import Model, Span
from hisparse_runtime.engine.weights import Floats
from hisparse_runtime.kernels import HotRows, resolve
from hisparse_runtime.kernels.resolve import Indices
from hisparse_runtime.policy import CopyDirection
from hisparse_runtime.scheduling import ScheduledRequest, StepPlan


@dataclass(slots=True)
class ExecutorCounters:
    """Since start. Hits and misses are look-ups of decode rows in hot regions, as upstream counts them; prefill chunks
    gather what they need from the host on the side and count in neither."""

    hits: int = 0
    misses: int = 0
    host_to_device_bytes: int = 0
    mirror_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class _Tables:
    """The block tables of one request in this step, as arrays."""

    start: int
    count: int
    resident: Indices
    host: Indices
    indexer: Indices
    hot_blocks: Indices
    hot: tuple[HotRows, ...] | None


class Executor:
    def __init__(self, *, model: Model, memory: KvMemory, hot_rows: int) -> None:
        self.counters = ExecutorCounters()
        self._model = model
        self._memory = memory
        self._geometry = model.config.geometry
        self._hot_rows = hot_rows
        self._hot: dict[int, tuple[HotRows, ...]] = {}  # by grant, one per layer as every layer has its own indexer
        self._tables: list[_Tables] = []
        self._copied: list[int] = []

    def execute(self, plan: StepPlan) -> dict[str, int]:
        """The new tokens of the requests that wanted one."""
        self._copy_index_keys(plan)
        self._prepare_hot_regions(plan)
        tokens: dict[str, int] = {}
        if plan.requests:
            self._tables = [self._tables_of(request) for request in plan.requests]
            spans = [
                Span(start=request.start, tokens=request.tokens, wants_logits=request.wants_token) for request in plan.requests
            ]
            for request, token in zip(plan.requests, self._model.forward(spans, self), strict=True):
                if token is not None:
                    tokens[request.request_id] = token
        self._write_back(plan)
        return tokens

    def take_acknowledged(self) -> list[int]:
        """Write-backs completed since the last call."""
        copied, self._copied = self._copied, []
        return copied

    def write(self, *, layer: int, span: int, latents: Floats, index_keys: Floats) -> None:
        tables, page = self._tables[span], self._geometry.page_tokens
        positions = np.arange(tables.start, tables.start + tables.count)
        pages, offsets = positions // page, positions % page
        self._memory.latents[tables.resident[pages], layer, offsets] = latents
        self._memory.index_keys[tables.indexer[pages], layer, offsets] = index_keys

    def index_keys(self, *, layer: int, span: int) -> Floats:
        keys = self._memory.index_keys[self._tables[span].indexer, layer]
        flat: Floats = keys.reshape(-1, keys.shape[-1])
        return flat

    def gather(self, *, layer: int, selections: Sequence[Indices]) -> Floats:
        page = self._geometry.page_tokens
        rows, staged_at, staged_rows = [], [], []
        first = 0
        for tables, selection in zip(self._tables, selections, strict=True):
            if tables.count == 1:
                rows.append(self._resolve_row(layer, tables, selection))
            else:
                # A chunk would push far more rows through the region than it holds: host rows go straight into the result.
                resident = tables.resident[selection // page]
                is_selected = selection >= 0
                rows.append(np.where(is_selected, resident * page + selection % page, 0))
                away = np.nonzero(is_selected & (resident == 0))
                staged_at.append((away[0] + first, away[1]))
                positions = selection[away]
                staged_rows.append(tables.host[positions // page] * page + positions % page)
            first += tables.count
        all_rows = np.concatenate(rows)
        latents: Floats = self._memory.latents[all_rows // page, layer, all_rows % page]
        for at, host_rows in zip(staged_at, staged_rows, strict=True):
            latents[at] = self._memory.host[host_rows // page, layer, host_rows % page]
        return latents

    def _resolve_row(self, layer: int, tables: _Tables, selection: Indices) -> Indices:
        page = self._geometry.page_tokens
        positions = selection[0][selection[0] >= 0]
        resolution = resolve(
            positions,
            resident=tables.resident,
            host=tables.host,
            hot_blocks=tables.hot_blocks,
            hot=None if tables.hot is None else tables.hot[layer],
            page_tokens=page,
        )
        if resolution.num_misses:
            source, target = resolution.miss_host_rows, resolution.miss_device_rows
            self._memory.latents[target // page, layer, target % page] = self._memory.host[source // page, layer, source % page]
        self.counters.hits += resolution.num_hits
        self.counters.misses += resolution.num_misses
        self.counters.host_to_device_bytes += resolution.num_misses * self._geometry.row_bytes
        # Padding reads the null block, which is all zeros.
        rows = np.zeros_like(selection)
        rows[0, : len(positions)] = resolution.device_rows
        return rows

    def _tables_of(self, request: ScheduledRequest) -> _Tables:
        return _Tables(
            start=request.start,
            count=len(request.tokens),
            resident=np.asarray(request.resident, dtype=np.int64),
            host=np.asarray(request.host, dtype=np.int64),
            indexer=np.asarray(request.indexer, dtype=np.int64),
            hot_blocks=np.asarray(request.hot, dtype=np.int64),
            hot=None if request.hot_grant is None else self._hot[request.hot_grant],
        )

    def _prepare_hot_regions(self, plan: StepPlan) -> None:
        for grant in self._hot.keys() - plan.live_grants:
            del self._hot[grant]
        if plan.fresh_host_blocks:
            fresh = np.asarray(plan.fresh_host_blocks, dtype=np.int64)
            for layers in self._hot.values():
                for hot in layers:
                    hot.scrub(fresh, page_tokens=self._geometry.page_tokens)
        for grant in plan.live_grants - self._hot.keys():
            self._hot[grant] = tuple(HotRows(self._hot_rows) for _ in range(self._geometry.num_layers))

    def _copy_index_keys(self, plan: StepPlan) -> None:
        for copy in plan.indexer_copies:
            if copy.direction is CopyDirection.STORE:
                self._memory.offload[copy.offload_block] = self._memory.index_keys[copy.device_block]
            else:
                self._memory.index_keys[copy.device_block] = self._memory.offload[copy.offload_block]

    def _write_back(self, plan: StepPlan) -> None:
        if plan.write_backs:
            device = [write_back.device_block for write_back in plan.write_backs]
            host = [write_back.host_block for write_back in plan.write_backs]
            self._memory.host[host] = self._memory.latents[device]
            self._copied.extend(write_back.transfer_id for write_back in plan.write_backs)
            self.counters.mirror_bytes += len(device) * self._geometry.host_page_bytes
