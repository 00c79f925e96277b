"""The committed traces are what vLLM's scheduler decides: a random sample of the workloads is run anew, in both versions."""

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.contract.scheduling_oracle import Failure, upstream_traces
from tests.contract.trace_data import DEVIATING_VERSION, FAILURES, REFERENCE_VERSION, kinds, traces
from tests.contract.traces import Trace, differences

PER_KIND = 1
PROCESS_SECONDS = 240.0
VERSIONS = (REFERENCE_VERSION, DEVIATING_VERSION)

pytestmark = [pytest.mark.contract, pytest.mark.timeout(PROCESS_SECONDS + 60)]

Run = tuple[list[Trace], list[Trace | Failure]]


@pytest.fixture(scope="module")
def runs(sample_seed: int) -> Iterator[dict[str, Future[Run]]]:
    """Committed and live traces by version."""
    pool = ThreadPoolExecutor(max_workers=len(VERSIONS))
    yield {version: pool.submit(_run_sample, version, sample_seed) for version in VERSIONS}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_vllm_schedules_as_committed(version: str, runs: dict[str, Future[Run]]) -> None:
    committed, live = runs[version].result()
    assert len(committed) == len(live) == PER_KIND * len(kinds())
    for expected, actual in zip(committed, live, strict=True):
        name = expected.workload.name
        if name in FAILURES[version]:
            assert isinstance(actual, Failure), name
            continue
        assert isinstance(actual, Trace), f"{name}: {actual}"
        assert actual.limits == expected.limits, name
        for number, steps in enumerate(zip(expected.steps, actual.steps, strict=True)):
            assert not differences(*steps), f"{name}, step {number}; next step: python -m tests.contract.make_trace_data"


def _run_sample(version: str, seed: int) -> Run:
    chance = random.Random(seed)  # noqa: S311  repeatable, not secret
    committed = [trace for kind in kinds() for trace in chance.sample(list(traces(kind, version=version)), PER_KIND)]
    workloads = [trace.workload for trace in committed]
    return committed, list(upstream_traces(version, workloads, timeout_seconds=PROCESS_SECONDS))
