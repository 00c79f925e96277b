"""Runs a StepPlan: offload jobs and restores, forward pass with resolved rows, write-backs and stores."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from hisparse_runtime.engine.memory import KvMemory
from hisparse_runtime.engine.model import Model, Span
from hisparse_runtime.engine.tables import RequestTables, Tables
from hisparse_runtime.engine.weights import Floats
from hisparse_runtime.kernels import resolve
from hisparse_runtime.kernels.resolve import Indices
from hisparse_runtime.policy import OffloadJob, PageTransfer
from hisparse_runtime.scheduling import StepPlan, StepResult


@dataclass(slots=True)
class ExecutorCounters:
    """Since start. Hits and misses are look-ups of decode rows in hot regions, as upstream counts them; prefill chunks
    gather what they need from the host on the side and count in neither."""

    hits: int = 0
    misses: int = 0
    host_to_device_bytes: int = 0
    mirror_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Batched:
    """One request of the step."""

    start: int
    count: int
    tables: RequestTables


class ModelExecutor:
    """An Executor that has run a step when `submit` returns, all of its copies included."""

    def __init__(self, *, model: Model, memory: KvMemory, hot_rows: int) -> None:
        self.counters = ExecutorCounters()
        self._model = model
        self._memory = memory
        self._geometry = model.config.geometry
        geometry = self._geometry
        # Layer -> its group, and its place in the group's blocks.
        edges = [0, *accumulate(geometry.layers_per_group)]
        self._group_layers = [slice(first, last) for first, last in pairwise(edges)]
        self._places = [
            (group, layer - part.start) for group, part in enumerate(self._group_layers) for layer in range(part.start, part.stop)
        ]
        self._tables = Tables(
            num_groups=geometry.num_groups,
            num_layers=geometry.num_layers,
            hot_rows=hot_rows,
            page_tokens=geometry.page_tokens,
        )
        self._batch: list[_Batched] = []
        self._results: deque[StepResult] = deque()

    def submit(self, plan: StepPlan) -> None:
        changes = plan.changes
        self._tables.update(changes, ended=plan.ended)
        flushed = set(changes.flushed_jobs)
        self._run_jobs([job for job in changes.jobs if job.job_id in flushed])
        self._run_jobs([job for job in changes.jobs if job.is_load])
        self._restore([transfer for transfer in changes.transfers if transfer.is_restore])
        tokens = self._forward(plan) if plan.requests else {}
        self._write_back([transfer for transfer in changes.transfers if not transfer.is_restore])
        self._run_jobs([job for job in changes.jobs if not job.is_load and job.job_id not in flushed])
        self._results.append(
            StepResult(
                tokens=tokens,
                completed=[transfer.transfer_id for transfer in changes.transfers],
                completed_jobs=[job.job_id for job in changes.jobs],
            )
        )

    def collect(self) -> StepResult:
        return self._results.popleft()

    def write(self, *, layer: int, span: int, latents: Floats, index_keys: Floats) -> None:
        each, page = self._batch[span], self._geometry.page_tokens
        group, place = self._places[layer]
        positions = np.arange(each.start, each.start + each.count)
        pages, offsets = positions // page, positions % page
        self._memory.latents[each.tables.resident[group, pages], place, offsets] = latents
        self._memory.index_keys[each.tables.indexer[pages], layer, offsets] = index_keys

    def index_keys(self, *, layer: int, span: int) -> Floats:
        tables = self._batch[span].tables
        keys = self._memory.index_keys[tables.indexer[: tables.num_pages], layer]
        flat: Floats = keys.reshape(-1, keys.shape[-1])
        return flat

    def gather(self, *, layer: int, selections: Sequence[Indices]) -> Floats:
        page = self._geometry.page_tokens
        group, place = self._places[layer]
        rows, staged_at, staged_rows = [], [], []
        first = 0
        for each, selection in zip(self._batch, selections, strict=True):
            if each.count == 1:
                rows.append(self._resolve_row(layer, each.tables, selection))
            else:
                # A chunk would push far more rows through the region than it holds: host rows go straight into the result.
                resident = each.tables.resident[group, selection // page]
                is_selected = selection >= 0
                rows.append(np.where(is_selected, resident * page + selection % page, 0))
                away = np.nonzero(is_selected & (resident == 0))
                staged_at.append((away[0] + first, away[1]))
                positions = selection[away]
                staged_rows.append(each.tables.host[positions // page] * page + positions % page)
            first += each.count
        all_rows = np.concatenate(rows)
        latents: Floats = self._memory.latents[all_rows // page, place, all_rows % page]
        for at, host_rows in zip(staged_at, staged_rows, strict=True):
            latents[at] = self._memory.host[host_rows // page, layer, host_rows % page]
        return latents

    def _forward(self, plan: StepPlan) -> dict[str, list[int]]:
        self._batch = [_Batched(each.start, each.num_tokens, self._tables[each.request_id]) for each in plan.requests]
        spans = [
            Span(
                start=each.start,
                tokens=each.request.tokens[each.start : each.start + each.num_tokens],
                wants_logits=each.wants_token,
            )
            for each in plan.requests
        ]
        tokens = self._model.forward(spans, self)
        return {each.request_id: [token] for each, token in zip(plan.requests, tokens, strict=True) if token is not None}

    def _resolve_row(self, layer: int, tables: RequestTables, selection: Indices) -> Indices:
        page = self._geometry.page_tokens
        group, place = self._places[layer]
        positions = selection[0][selection[0] >= 0]
        resolution = resolve(
            positions,
            resident=tables.resident[group],
            host=tables.host,
            hot_blocks=tables.hot_blocks[group],
            hot=None if tables.hot is None else tables.hot[layer],
            page_tokens=page,
        )
        if resolution.num_misses:
            source, target = resolution.miss_host_rows, resolution.miss_device_rows
            self._memory.latents[target // page, place, target % page] = self._memory.host[source // page, layer, source % page]
        self.counters.hits += resolution.num_hits
        self.counters.misses += resolution.num_misses
        self.counters.host_to_device_bytes += resolution.num_misses * self._geometry.row_bytes
        # Padding reads the null block, which is all zeros.
        rows = np.zeros_like(selection)
        rows[0, : len(positions)] = resolution.device_rows
        return rows

    def _run_jobs(self, jobs: Sequence[OffloadJob]) -> None:
        for job in jobs:
            if job.is_load:
                self._memory.index_keys[job.device_blocks] = self._memory.offload[job.slots]
            else:
                self._memory.offload[job.slots] = self._memory.index_keys[job.device_blocks]

    def _restore(self, transfers: Sequence[PageTransfer]) -> None:
        for layers, device, host in self._ends(transfers):
            self._memory.latents[device, : layers.stop - layers.start] = self._memory.host[host, layers]

    def _write_back(self, transfers: Sequence[PageTransfer]) -> None:
        for layers, device, host in self._ends(transfers):
            self._memory.host[host, layers] = self._memory.latents[device, : layers.stop - layers.start]
        self.counters.mirror_bytes += len(transfers) * self._geometry.host_page_bytes

    def _ends(self, transfers: Sequence[PageTransfer]) -> list[tuple[slice, Indices, Indices]]:
        """Group by group: its layers, and the device and host blocks of the transfers."""
        if not transfers:
            return []
        device = np.array([transfer.device_blocks for transfer in transfers], dtype=np.int64)
        host = np.array([transfer.host_block for transfer in transfers], dtype=np.int64)
        return [(layers, device[:, group], host) for group, layers in enumerate(self._group_layers)]
