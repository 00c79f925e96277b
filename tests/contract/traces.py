"""What a scheduler decided, step by step: the format in which vLLM's own decisions are kept and compared with ours.

A step is one call to schedule, the output that is processed after it, and the state then. No token and no block id is in a trace:
ids may differ. The order of the free blocks shows in which pages get lost.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_origin

from tests.contract.workloads import Workload

Pages = str  # numbers in ascending order, as in "0-3,7"
RequestStatus = Literal["waiting", "importing", "running", "preempted", "finished"]


class Transfer(NamedTuple):
    """A page of all groups, from the GPU to the host; `restore`: from the host to the GPU."""

    request: str
    page: int
    restore: bool


class OffloadJob(NamedTuple):
    """Pages between the GPU and the offload tier, the first one's number and how many (with gaps). `load`: to the GPU."""

    request: str
    first_page: int
    num_pages: int
    load: bool


class Admission(NamedTuple):
    """A waiting request that got memory, with its prefix hit in tokens. An import is admitted long before it is scheduled."""

    request: str
    local_tokens: int
    imported_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """A live request at the end of a step. Numbers of pages where the names say so; sets of pages by their index in the request.
    Without HiSparse, `pages` are those on the GPU, and nothing is said of page states.

    `valid`: the copy on the host is complete. `pinned_clean`, `unpinned`: such pages of which the request holds the GPU blocks,
    or reads them on until the pool hands them out. `stale`: what the worker has to be told, of the first `synced_pages` that it
    knows. `finished` is a request that only waits for something in flight.
    """

    status: RequestStatus
    tokens: int  # prompt and answer so far
    computed: int
    pages: int
    resident: Pages = ""
    valid: Pages = ""
    ready_pages: int = 0
    pending: Pages = ""
    pinned_clean: Pages = ""
    unpinned: Pages = ""
    stale: Pages = ""
    synced_pages: int = 0
    hot: bool = False
    hot_required: bool = False

    @property
    def host_only(self) -> Pages:
        """Pages that are read through the hot region."""
        return pages_text(set(range(self.pages)) - page_set(self.resident))

    @property
    def dirty(self) -> Pages:
        """Pages of which the GPU has the only copy, and none is on its way."""
        return pages_text(page_set(self.resident) - page_set(self.valid) - page_set(self.pending))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Decisions of one step in the order in which they are made, then the state at its end.

    `scheduled`: tokens, in batch order. `drafts`: speculative ones among them. `deferred`: requests whose admission did not fit,
    and where. `stalled`: running ones that wait for a transfer instead of preempting somebody. `lost`: pages that the pool took
    (by request id). `adopted`: pages that came back by a prefix hit. `mirrored`: token positions whose rows are written through
    to the host. `told`: pages whose residency is sent to the worker. `sampled` and what is `acked` belong to the
    output that this step processes.
    """

    scheduled: Mapping[str, int]
    drafts: Mapping[str, int]
    admitted: Sequence[Admission]
    preempted: Sequence[str]
    deferred: Mapping[str, Literal["gpu", "host"]]
    stalled: Sequence[str]
    lost: Mapping[str, Pages]
    adopted: Mapping[str, Pages]
    transfers: Sequence[Transfer]
    mirrored: Mapping[str, Pages]
    told: Mapping[str, Pages]
    scrubbed_host_blocks: int  # blocks of which the worker forgets hot rows: new ones, and a new request's prefix hit
    all_resident: bool  # every page that the batch reads
    sampled: Mapping[str, int]  # tokens in the output processed in this step, before a request's end cuts them
    acked: Sequence[Transfer]
    finished: Sequence[str]
    running: Sequence[str]
    waiting: Sequence[str]  # those that hold blocks first
    free_gpu_blocks: int
    free_host_blocks: int
    below_watermark: bool
    pending_transfers: int
    cached_gpu_pages: int  # by distinct content
    cached_host_pages: int
    copies: int  # published pages that a prefix hit would find on the GPU
    offload_jobs: Sequence[OffloadJob]
    flushed_jobs: Sequence[OffloadJob]  # stores to end before this step, which writes into their blocks
    acked_jobs: Sequence[OffloadJob]
    offloaded_pages: int
    requests: Mapping[str, RequestState]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the settings come to, by vLLM's own planning. Blocks per group and request; pools with their null block."""

    gpu_blocks: int
    lookahead_tokens: int
    reprefillable_tokens: int
    max_in_flight_tokens: int
    drops_stale_output: bool  # of a request that is preempted while a step with it runs
    drops_last_hit_page: bool  # because a draft model reads on
    num_groups: int = 0  # what follows: with HiSparse
    host_blocks: int = 0
    hot_blocks: int = 0
    admission_pages: int = 0
    watermark_blocks: int = 0
    max_transfers_per_step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A workload and what became of it."""

    workload: Workload
    limits: Limits
    steps: Sequence[Step]


def pages_text(pages: Iterable[int]) -> Pages:
    """{0, 1, 2, 5} as "0-2,5"."""
    runs: list[list[int]] = []
    for page in sorted(pages):
        if runs and page == runs[-1][1] + 1:
            runs[-1][1] = page
        else:
            runs.append([page, page])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def page_set(pages: Pages) -> set[int]:
    """Reverses `pages_text`."""
    runs = [run.split("-") for run in pages.split(",") if run]
    return {page for run in runs for page in range(int(run[0]), int(run[-1]) + 1)}


def differences(expected: Step, actual: Step) -> dict[str, tuple[Any, Any]]:
    """Fields that differ, order included; those of a request as "id.field"."""
    flat, other = _flat(expected), _flat(actual)
    return {name: (flat.get(name), other.get(name)) for name in flat | other if flat.get(name) != other.get(name)}


def _flat(step: Step) -> dict[str, Any]:
    values = {item.name: getattr(step, item.name) for item in fields(Step) if item.name != "requests"}
    result = {name: list(value.items()) if isinstance(value, Mapping) else value for name, value in values.items()}
    for request, state in step.requests.items():
        result |= {f"{request}.{item.name}": getattr(state, item.name) for item in fields(RequestState)}
    return result


def save_traces(path: Path, traces: Iterable[Trace]) -> None:
    """One trace per line; a step holds what is not empty, a request what changed since the step before it."""
    text = "".join(json.dumps(packed(trace), separators=(",", ":")) + "\n" for trace in traces)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def load_traces(path: Path) -> Iterator[Trace]:
    """Reverses `save_traces`."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield unpacked(json.loads(line))


def packed(trace: Trace) -> dict[str, Any]:
    """As plain JSON values."""
    before: Mapping[str, RequestState] = {}
    steps = []
    for step in trace.steps:
        record = {
            item.name: getattr(step, item.name) for item in fields(Step) if item.name != "requests" and getattr(step, item.name)
        }
        changes = {name: _changes(state, before.get(name)) for name, state in step.requests.items()}
        record["requests"] = {name: change for name, change in changes.items() if change}
        record["gone"] = [name for name in before if name not in step.requests]
        before = step.requests
        steps.append({name: value for name, value in record.items() if value})
    limits = {item.name: getattr(trace.limits, item.name) for item in fields(Limits)}
    return {"workload": trace.workload.to_json(), "limits": limits, "steps": steps}


def _changes(state: RequestState, before: RequestState | None) -> dict[str, Any]:
    return {
        item.name: getattr(state, item.name)
        for item in fields(RequestState)
        if before is None or getattr(state, item.name) != getattr(before, item.name)
    }


def unpacked(record: Mapping[str, Any]) -> Trace:
    """Reverses `packed`."""
    steps = []
    requests: dict[str, dict[str, Any]] = {}
    for packed in record["steps"]:
        for name in packed.pop("gone", ()):
            del requests[name]
        for name, changes in packed.pop("requests", {}).items():
            requests[name] = requests.get(name, {}) | changes
        values = {name: kind() for name, kind in _EMPTY.items()} | packed
        values["admitted"] = [Admission(*item) for item in values["admitted"]]
        values["transfers"] = [Transfer(*item) for item in values["transfers"]]
        values["acked"] = [Transfer(*item) for item in values["acked"]]
        for jobs in ("offload_jobs", "flushed_jobs", "acked_jobs"):
            values[jobs] = [OffloadJob(*item) for item in values[jobs]]
        states = {name: RequestState(**state) for name, state in requests.items()}
        steps.append(Step(**values, requests=states))
    return Trace(workload=Workload.from_json(record["workload"]), limits=Limits(**record["limits"]), steps=steps)


def _empty(kind: Any) -> Any:
    return {Mapping: dict, Sequence: list}.get(get_origin(kind), kind)


_EMPTY = {item.name: _empty(item.type) for item in fields(Step) if item.name != "requests"}
