"""Our telemetry inside of vLLM's real scheduler: what /metrics says is what a recount of the engine's own state gives, and
whatever fails in it, the engine decides the same."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hisparse_runtime.vllm.telemetry.residency import MetricsError, residency_of_metrics
from tests.contract.telemetry_runs import Answer, Run, answers, long_workload, short_workload
from tests.contract.upstream_side.telemetry_answer import FAULTS
from tests.contract.upstream_side.telemetry_scrape import NUM_WORKERS, SNAPSHOTS

PROCESS_SECONDS = 240.0
VERSIONS = ("0.32", "0.33")
# 0.30 ends by itself at prefix hits under load ("Cannot get N free blocks from the pool"), which long runs are full of.
SHORT_ONLY_VERSION, OLD_VERSION = "0.30", "0.31"
FAULTS_VERSION = "0.33"
KEY = "hisparse_telemetry"

pytestmark = [pytest.mark.contract, pytest.mark.timeout(PROCESS_SECONDS + 60)]
_old = [pytest.param(version, marks=pytest.mark.nightly) for version in (OLD_VERSION, SHORT_ONLY_VERSION)]
each_version = pytest.mark.parametrize("version", [*VERSIONS, *_old])
each_long_run = pytest.mark.parametrize(
    ("version", "run"),
    [
        pytest.param(*one.values, run, marks=one.marks)
        for one in (*map(pytest.param, VERSIONS), _old[0])
        for run in ("alone", "siblings")
    ],
)


@pytest.fixture(scope="module")
def answered() -> Iterator[Callable[[str], dict[str, Answer]]]:
    """The runs of a version, all in one process: starting vLLM takes longer than they do."""
    pool = ThreadPoolExecutor(max_workers=len(VERSIONS))
    running: dict[str, Future[dict[str, Answer]]] = {}

    def start(version: str) -> Future[dict[str, Answer]]:
        if version not in running:
            running[version] = pool.submit(answers, version, _runs(version), timeout_seconds=PROCESS_SECONDS)
        return running[version]

    def get(version: str) -> dict[str, Answer]:
        for one in VERSIONS if version in VERSIONS else ():
            start(one)
        results = start(version).result()
        assert not [answer.error for answer in results.values() if answer.error]
        return results

    yield get
    pool.shutdown(cancel_futures=True)


def _runs(version: str) -> list[Run]:
    short = short_workload()
    runs = [
        Run(id="short", workload=short),
        Run(id="idle", workload=short, measured="idle"),
        Run(id="as served", workload=short, measured="as served"),
        Run(id="off", workload=short, switch="off"),
    ]
    if version != SHORT_ONLY_VERSION:
        runs += [
            Run(id="alone", workload=long_workload(with_siblings=False)),
            Run(id="siblings", workload=long_workload(with_siblings=True)),
            Run(id="offload", workload=short_workload(offload_pages=100)),
        ]
    if version == FAULTS_VERSION:
        runs += [Run(id=fault, workload=short, fault=fault) for fault in FAULTS]
    return runs


@each_long_run
def test_each_page_of_metrics_is_what_a_recount_gives(
    run: str, version: str, answered: Callable[[str], dict[str, Answer]]
) -> None:
    answer = answered(version)[run]
    assert len(answer.steps) >= 900
    for number, step in enumerate(answer.steps):
        _expect_recount(step, answer.sizes, f"{run}, output {number}")
    seen = [step["recount"] for step in answer.steps]
    assert {name for recount in seen for name, count in recount["requests"].items() if count} >= {
        "full",
        "mixed",
        "none",
        "waiting",
    }
    assert all(any(recount["pages"][state] for recount in seen) for state in seen[0]["pages"])
    assert any(recount["requests"]["full"] and recount["requests"]["mixed"] for recount in seen)


@each_long_run
def test_events_add_up_to_what_happened(run: str, version: str, answered: Callable[[str], dict[str, Answer]]) -> None:
    answer = answered(version)[run]
    last = answer.steps[-1]
    assert last["recount"]["held"] == last["recount"]["unacknowledged"] == 0, "the run was cut"
    assert {name: _value(last["page"], f"hisparse_{name}_total") for name in answer.totals} == answer.totals
    assert {name for name, number in answer.totals.items() if number} >= {"lost_pages", "adopted_pages", "written_back_pages"}
    assert run == "alone" or answer.totals["restored_pages"]
    assert _value(last["page"], "hisparse_telemetry_errors_total") == 0


@each_long_run
def test_rows_of_hot_regions_count_once_for_all_ranks(
    run: str, version: str, answered: Callable[[str], dict[str, Answer]]
) -> None:
    answer = answered(version)[run]
    hits, misses, num_bytes = (answer.snapshots * sum(counts) for counts in zip(*SNAPSHOTS, strict=True))
    hot = _report(answer.steps[-1]["page"])["hot"]
    assert (hot["hits"], hot["misses"], hot["host_to_device_bytes"]) == (hits, misses, num_bytes)
    assert _value(answer.steps[-1]["page"], "vllm:hisparse_cache_hits_total") == NUM_WORKERS * hits
    assert any("hot-buffer hits" in line for line in answer.log), "vLLM's log line is gone"


@each_version
@pytest.mark.parametrize("run", ["idle", "as served"])
def test_an_engine_at_rest_is_told_as_it_is(run: str, version: str, answered: Callable[[str], dict[str, Answer]]) -> None:
    answer = answered(version)[run]
    at_rest = [step for step in answer.steps if not step["recount"]["held"]]
    assert at_rest[-1] is answer.steps[-1]
    for step in at_rest:
        _expect_recount(step, answer.sizes, run)
    if run == "idle":  # the clock stands, so after the first measurement there is none until the first rest
        early = [_report(step["page"])["pages"] for step in answer.steps[: answer.steps.index(at_rest[0])]]
        assert len(early) > 10
        assert all(pages == early[0] for pages in early)


@each_version
def test_a_short_run_is_told_right_in_every_version(version: str, answered: Callable[[str], dict[str, Answer]]) -> None:
    answer = answered(version)["short"]
    for step in answer.steps:
        _expect_recount(step, answer.sizes, "short")
    assert answer.totals["written_back_pages"] > 0


@each_version
def test_telemetry_does_not_change_what_is_decided(version: str, answered: Callable[[str], dict[str, Answer]]) -> None:
    results = answered(version)
    assert len({results[run].decisions for run in ("short", "idle", "as served", "off")}) == 1
    assert version == SHORT_ONLY_VERSION or results["short"].totals["lost_pages"] > 0


@each_version
def test_switched_off_it_is_upstream_s_connector(version: str, answered: Callable[[str], dict[str, Answer]]) -> None:
    results = answered(version)
    assert set(results["short"].keys) - set(results["off"].keys) == {KEY}
    page = results["off"].steps[-1]["page"]
    assert _value(page, "vllm:hisparse_cache_hits_total") == results["off"].snapshots * NUM_WORKERS * 90
    assert not [line for line in page.splitlines() if line.startswith("hisparse_")]
    with pytest.raises(MetricsError, match="HISPARSE_TELEMETRY=off"):
        _report(page)


@pytest.mark.parametrize("version", [*VERSIONS, _old[0]])
def test_beside_an_offload_tier_both_connectors_are_told(version: str, answered: Callable[[str], dict[str, Answer]]) -> None:
    answer = answered(version)["offload"]
    for step in answer.steps:
        _expect_recount(step, answer.sizes, "offload")
    assert any("OffloadingConnector" in line for line in answer.log)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_is_counted_and_the_engine_goes_on(fault: str, answered: Callable[[str], dict[str, Answer]]) -> None:
    results = answered(FAULTS_VERSION)
    answer = results[fault]
    assert answer.decisions == results["short"].decisions
    page = answer.steps[-1]["page"]
    assert _value(page, "hisparse_telemetry_errors_total") > 0
    assert _value(page, "vllm:hisparse_cache_hits_total") == answer.snapshots * NUM_WORKERS * 90


def _expect_recount(step: dict[str, Any], sizes: dict[str, int], where: str) -> None:
    recount, report = step["recount"], _report(step["page"])
    assert {name: report["requests"][name] for name in recount["requests"]} == recount["requests"], where
    assert report["pages"] == recount["pages"], where
    assert report["hot"]["regions_in_use"] == recount["regions"], where
    block_bytes = {"host": sizes["host_stride"], "device": sizes["device_bytes"] // sizes["device_blocks"]}
    for pool, size in block_bytes.items():
        capacity, used = sizes[f"{pool}_blocks"] - 1, recount[f"used_{pool}_blocks"]
        assert report[f"{pool}_pool"] == {"capacity_bytes": capacity * size, "used_bytes": used * size}, where
    free_blocks = sizes["device_blocks"] - 1 - recount["used_device_blocks"]
    below = _value(step["page"], "hisparse_below_transition_watermark")
    assert bool(below) == (free_blocks < recount["watermark"]), where


def _report(page: str) -> dict[str, Any]:
    return residency_of_metrics(page, model="glm", version="0", uptime_seconds=1.0)


def _value(page: str, name: str) -> float:
    """Of a metric with one series."""
    (value,) = re.findall(rf"^{name}{{[^}}]*}} (\S+)$", page, re.MULTILINE)
    return float(value)
