"""The committed traces show what they are for, and can be read back."""

import json

import pytest

from tests.contract.trace_coverage import PHENOMENA, coverage
from tests.contract.trace_data import FOLDER, REFERENCE_VERSION, kinds, traces
from tests.contract.traces import RequestState, Trace, packed, page_set, pages_text, unpacked

MIN_STEPS, MIN_SEEDS = 10_000, 200
RARE = 50
MAX_FILE_BYTES = 1_500_000


@pytest.fixture(scope="module")
def all_traces() -> list[Trace]:
    return [trace for kind in kinds() for trace in traces(kind, version=REFERENCE_VERSION)]


def test_there_are_enough_steps_of_each_kind_of_event(all_traces: list[Trace]) -> None:
    steps, workloads, num_steps = coverage(all_traces)
    assert num_steps >= MIN_STEPS
    assert len(all_traces) >= MIN_SEEDS
    assert [name for name in PHENOMENA if not steps[name]] == []
    assert sum(steps[name] > RARE for name in PHENOMENA) > 0.8 * len(PHENOMENA)
    assert all(workloads[name] for name in PHENOMENA)


def test_no_data_file_is_large() -> None:
    assert {path.name: size for path in FOLDER.glob("*") if (size := path.stat().st_size) > MAX_FILE_BYTES} == {}


def test_traces_survive_packing(all_traces: list[Trace]) -> None:
    for trace in all_traces[::20]:
        assert unpacked(json.loads(json.dumps(packed(trace)))) == trace


def test_page_states_of_the_data_are_consistent(all_traces: list[Trace]) -> None:
    """What holds for vLLM by its design: it would not, were a field misread."""
    for trace in (trace for trace in all_traces if trace.limits.num_groups):
        for number, step in enumerate(trace.steps):
            for name, state in step.requests.items():
                assert _mistakes(state) == [], f"{trace.workload.name}, step {number}, {name}"


def _mistakes(state: RequestState) -> list[str]:
    resident, valid, pending = page_set(state.resident), page_set(state.valid), page_set(state.pending)
    pinned, unpinned = page_set(state.pinned_clean), page_set(state.unpinned)
    rules = {
        "an unpinned page is clean and readable on the GPU": unpinned <= valid & resident,
        "a clean page is pinned or unpinned": not pinned & unpinned,
        "the last two pages are never unpinned": not unpinned & {state.pages - 1, state.pages - 2},
        "the ready prefix is clean": set(range(state.ready_pages)) <= valid,
        "a page that the GPU lost is clean": page_set(state.host_only) <= valid or state.status in ("importing", "finished"),
        "a page under way is on the GPU": pending <= resident,
    }
    return [rule for rule, holds in rules.items() if not holds]


@pytest.mark.parametrize(("pages", "text"), [(set(), ""), ({3}, "3"), ({0, 1, 2, 5}, "0-2,5"), ({7, 9, 10}, "7,9-10")])
def test_pages_are_written_as_ranges(pages: set[int], text: str) -> None:
    assert pages_text(pages) == text
    assert page_set(text) == pages


def test_data_has_no_time_of_day() -> None:
    """The same traces give the same bytes."""
    assert [path.name for path in FOLDER.glob("*.gz") if path.read_bytes()[4:8] != bytes(4)] == []
