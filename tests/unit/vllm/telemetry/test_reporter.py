"""When the engine core measures, and what it sends: without vLLM, on a coordinator that has as much as is read of one."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from hisparse_runtime.vllm.telemetry import catalogue
from hisparse_runtime.vllm.telemetry.guard import Guard
from hisparse_runtime.vllm.telemetry.levels import Sizes, sizes_of
from hisparse_runtime.vllm.telemetry.reporter import PAUSE_PER_COST, PERIOD_SECONDS, Reporter

RUNNING = object()
SIZES = Sizes(
    host_page_bytes=90,
    host_block_bytes=100,
    device_block_bytes=10,
    host_pool_copies=1,
    shares_host_pool=True,
    steady_state_concurrency=2.5,
)


class Clock:
    """Each reading is `step_seconds` later."""

    def __init__(self) -> None:
        self.now_seconds = self.step_seconds = 0.0

    def __call__(self) -> float:
        self.now_seconds += self.step_seconds
        return self.now_seconds


class Engine:
    """A coordinator and the requests of its connector."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.requests: dict[str, Any] = {}
        pool = SimpleNamespace(num_gpu_blocks=51, get_num_free_blocks=lambda: 30)
        self.coordinator: Any = SimpleNamespace(
            request_states={},
            resident_managers=[SimpleNamespace(req_to_blocks={}, adopt_resident_page=lambda _name, page, _block: page == 0)],
            hot_managers=[SimpleNamespace(req_to_blocks={}, blocks_per_request=2)],
            gpu_pool=pool,
            get_host_block_pool=lambda: pool,
            transition_watermark=31,
            _lose_page=lambda _name, _page: None,
        )
        self.reporter = Reporter(Guard(), running=RUNNING, clock=self.clock)
        self.reporter.attach(self.coordinator, self.requests, SIZES)

    def add(self, name: str, *, pages: int, valid: int, pinned: int, unpinned: int, pending: tuple[int, ...] = ()) -> None:
        """A running request with a hot region."""
        self.requests[name] = SimpleNamespace(request_id=name, status=RUNNING)
        self.coordinator.resident_managers[0].req_to_blocks[name] = [None] * pages
        self.coordinator.hot_managers[0].req_to_blocks[name] = [None, None]
        self.coordinator.request_states[name] = SimpleNamespace(
            valid_pages=set(range(valid)),
            pinned_clean=set(range(pinned)),
            unpinned_pages=set(range(pinned, pinned + unpinned)),
            pending_pages=dict.fromkeys(pending, 0),
        )

    def finish_all(self) -> None:
        self.requests.clear()
        for owner in (self.coordinator.resident_managers[0], self.coordinator.hot_managers[0]):
            owner.req_to_blocks.clear()
        self.coordinator.request_states.clear()


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_a_record_has_every_level_of_the_catalogue(engine: Engine) -> None:
    (record,) = engine.reporter.records()
    assert set(record) == {key for family in catalogue.LEVELS for key in family.series}


def test_pages_and_classes_follow_from_the_sizes_of_sets(engine: Engine) -> None:
    engine.add("full", pages=10, valid=7, pinned=3, unpinned=4, pending=(7, 8))
    engine.add("mixed", pages=20, valid=15, pinned=1, unpinned=2)
    engine.add("none", pages=6, valid=5, pinned=0, unpinned=0)
    engine.add("restored", pages=4, valid=4, pinned=0, unpinned=0, pending=(3,))
    engine.requests["importing"] = SimpleNamespace(request_id="importing", status=object())
    engine.requests["new"] = SimpleNamespace(request_id="new", status=RUNNING)
    (record,) = engine.reporter.records()
    assert [record[f"requests_{name}"] for name in catalogue.RESIDENCIES] == [2, 2, 1]
    # dirty: 1 + 5 + 1 + 0, host only: 0 + 12 + 5 + 3
    assert [record[f"pages_{state}"] for state in catalogue.PAGE_STATES] == [7, 3, 4, 6, 20]
    assert record["hot_regions"] == 4


def test_pools_leave_the_null_block_out(engine: Engine) -> None:
    (record,) = engine.reporter.records()
    assert (record["host_capacity_bytes"], record["host_used_bytes"]) == (5000, 2000)
    assert (record["device_capacity_blocks"], record["device_used_blocks"]) == (50, 20)
    assert record["below_transition_watermark"] == 1


def test_under_way_it_measures_once_a_period(engine: Engine) -> None:
    engine.add("r", pages=3, valid=1, pinned=1, unpinned=0)
    assert engine.reporter.records()
    engine.clock.now_seconds = PERIOD_SECONDS * 0.99
    assert not engine.reporter.records()
    engine.clock.now_seconds = PERIOD_SECONDS
    assert engine.reporter.records()


def test_a_slow_measurement_is_followed_by_a_longer_pause(engine: Engine) -> None:
    engine.add("r", pages=3, valid=1, pinned=1, unpinned=0)
    engine.clock.step_seconds = 0.1
    assert engine.reporter.records()
    engine.clock.step_seconds, engine.clock.now_seconds = 0.0, PAUSE_PER_COST * 0.1
    assert not engine.reporter.records()
    engine.clock.now_seconds += 0.2
    assert engine.reporter.records()


def test_what_an_idle_engine_is_like_is_sent_at_once_and_once(engine: Engine) -> None:
    engine.add("r", pages=3, valid=1, pinned=1, unpinned=0)
    assert engine.reporter.records()[0]["requests_full"] == 1
    engine.finish_all()
    assert engine.reporter.records()[0]["requests_full"] == 0
    assert not engine.reporter.records()


def test_events_are_sent_as_differences(engine: Engine) -> None:
    engine.add("r", pages=3, valid=1, pinned=1, unpinned=0)
    engine.coordinator._lose_page("r", 0)
    engine.coordinator._lose_page("gone", 0)
    assert [engine.coordinator.resident_managers[0].adopt_resident_page("r", page, None) for page in (0, 1)] == [True, False]
    transfers = [SimpleNamespace(restore=False)] * 3 + [SimpleNamespace(restore=True)]
    engine.reporter.count_transfers(SimpleNamespace(command=SimpleNamespace(page_transfers=transfers)))
    engine.reporter.count_transfers(SimpleNamespace(command=None))
    (record,) = engine.reporter.records()
    assert {key: record[key] for family in catalogue.EVENTS for key in family.series} == {
        "lost_pages": 1,
        "adopted_pages": 1,
        "written_back_pages": 3,
        "written_back_bytes": 270,
        "restored_pages": 1,
    }
    engine.finish_all()
    assert not {"lost_pages", "restored_pages"} & set(engine.reporter.records()[0])


def test_a_failed_measurement_is_counted_logged_once_and_costs_the_others_nothing(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.add("r", pages=3, valid=1, pinned=1, unpinned=0)
    del engine.coordinator.transition_watermark
    with caplog.at_level(logging.ERROR):
        records = [engine.reporter.records()]
        engine.clock.now_seconds += 1
        records.append(engine.reporter.records())
    for (record,) in records:
        assert record["telemetry_errors"] == 1
        assert (record["requests_full"], "hot_regions" in record) == (1, False)
    assert len(caplog.records) == 1


def test_a_coordinator_of_an_unknown_vllm_costs_one_error_and_no_request() -> None:
    reporter = Reporter(Guard(), running=RUNNING)
    reporter.attach(SimpleNamespace(), {}, SIZES)
    reporter.count_transfers(SimpleNamespace())
    assert reporter.records() == [{"telemetry_errors": 1}]
    assert reporter.records() == []


@pytest.mark.parametrize(("is_shared", "copies"), [(True, 1), (False, 8)])
def test_private_host_pools_are_as_many_as_workers(*, is_shared: bool, copies: int) -> None:
    config = SimpleNamespace(
        num_blocks=10,
        kv_cache_tensors=[SimpleNamespace(size=900, host_resident=True), *[SimpleNamespace(size=500, host_resident=False)] * 2],
        hisparse_host_num_blocks=9,
        hisparse_host_block_stride=128,
        hisparse_shared_host_pool=is_shared,
    )
    sizes = sizes_of(config, num_workers=8, steady_state_concurrency=None)
    assert (sizes.host_pool_copies, sizes.shares_host_pool) == (copies, is_shared)
    assert (sizes.host_page_bytes, sizes.host_block_bytes, sizes.device_block_bytes) == (100, 128, 50)
