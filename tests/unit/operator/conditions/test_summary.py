"""Observation -> status: counts, plan, residency, texts, and when anything is written at all."""

import json
from typing import Any

import pytest

from hisparse_operator.api import HiSparseDeployment, HiSparseDeploymentStatus
from hisparse_operator.planning import Infeasible, InfeasibleReason
from hisparse_operator.summary import REFRESH_SECONDS, summarise
from tests.unit.operator.objects import MIB, PLAN, deployment, observation, owner, pod, report, sample, with_status

PROBLEM = Infeasible(InfeasibleReason.NO_ELIGIBLE_NODE, "1 node: 1 has 8 nvidia.com/gpu of 16 needed")


def written(of: HiSparseDeployment | None = None, **fields: Any) -> HiSparseDeployment:
    """The object after a first status of two serving pods was written."""
    before = of or owner(replicas=2)
    return with_status(before, summarise(serving(before, **fields)))


def serving(of: HiSparseDeployment, **fields: Any) -> Any:
    wanted: dict[str, Any] = {
        "deployed": deployment(replicas=2, updated=2, ready=2),
        "pods": [pod(name="agents-1"), pod(name="agents-2")],
        "samples": {"agents-1": sample(), "agents-2": sample(age_seconds=3)},
    }
    return observation(of=of, **{**wanted, **fields})


def as_written(status: HiSparseDeploymentStatus) -> str:
    return json.dumps(status.model_dump(mode="json", by_alias=True, exclude_none=True))


def test_a_serving_object_in_full() -> None:
    status = summarise(serving(owner(replicas=2, generation=3)))
    assert status.observed_generation == 3
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (2, 2, 2)
    assert status.selector == "hisparse.dev/deployment=agents,app.kubernetes.io/component=engine"
    assert status.endpoint == "http://agents.shop.svc:8000"
    assert status.version == "0.1.0"
    assert status.plan == PLAN.to_status()
    assert status.residency is not None
    assert (status.residency.observed_at, status.residency.pods_reporting) == ("2027-03-04T05:06:07Z", 2)
    assert (status.residency.host_pool.capacity_bytes, status.residency.host_pool.used_bytes) == (192 * MIB, 48 * MIB)
    assert status.summary is not None
    assert status.summary.model_dump() == {
        "replicas": "2/2",
        "host_pool": "96.0 MiB",
        "offload": "32.0 MiB",
        "used": "25%",
        "hit": "90%",
    }


def test_a_new_object_has_zeros_and_no_residency() -> None:
    status = summarise(observation())
    assert (status.replicas, status.ready_replicas, status.updated_replicas, status.residency, status.version) == (
        0,
        0,
        0,
        None,
        None,
    )
    assert status.summary is not None
    assert (status.summary.replicas, status.summary.used, status.summary.hit) == ("0/1", None, None)


def test_an_object_without_any_plan_shows_none() -> None:
    status = summarise(observation(problem=PROBLEM))
    assert status.plan is None
    assert status.summary is not None
    assert (status.summary.host_pool, status.summary.offload) == (None, None)


def test_the_former_plan_stays_visible_while_a_new_one_is_not_possible() -> None:
    status = summarise(serving(written(), problem=PROBLEM))
    assert status.plan == PLAN.to_status()
    assert next(each for each in status.conditions if each.type == "PoolSized").reason == "NoEligibleNode"


def test_versions_of_a_roll_out_are_all_named() -> None:
    newer = sample(answer=report(engine={"version": "0.2.0"}))
    assert summarise(serving(owner(replicas=2), samples={"a": newer, "b": sample()})).version == "0.1.0, 0.2.0"
    assert summarise(serving(written(), samples={})).version == "0.1.0", "kept while no pod can be asked"


def test_no_hit_percentage_before_the_first_lookup() -> None:
    unused = sample(answer=report(hot={"hits": 0, "misses": 0}))
    status = summarise(serving(owner(replicas=2), samples={"a": unused}))
    assert status.summary is not None
    assert (status.summary.hit, status.summary.used) == (None, "25%")


def test_at23_the_generation_counts_as_observed_once_its_children_are_applied() -> None:
    before = written()
    newer = with_status(before, before.status or HiSparseDeploymentStatus())
    newer = HiSparseDeployment(**{name: getattr(newer, name) for name in newer.__slots__} | {"generation": 2})
    assert summarise(serving(newer, apply_error="The API server refused a child: 500.")).observed_generation == 1
    assert summarise(serving(newer)).observed_generation == 2
    assert summarise(observation(apply_error="The API server refused a child: 500.")).observed_generation is None


def test_at24_numbers_are_kept_but_flagged_once_they_are_older_than_three_periods() -> None:
    before = written()
    status = summarise(serving(before, seconds_later=60))
    assert before.status is not None
    assert status.residency == before.status.residency
    assert status.residency is not None
    assert status.residency.observed_at == "2027-03-04T05:06:07Z"
    assert next(each for each in status.conditions if each.type == "TelemetryAvailable").status == "Unknown"


def test_at24_a_pod_that_is_stale_does_not_count_among_those_that_report() -> None:
    status = summarise(serving(owner(replicas=2), samples={"a": sample(), "b": sample(age_seconds=16), "c": None}))
    assert status.residency is not None
    assert status.residency.pods_reporting == 1


def test_residency_ends_with_the_last_wanted_pod() -> None:
    before = written(owner(replicas=2))
    assert before.status is not None
    scaled = with_status(owner(replicas=0), before.status)
    assert summarise(serving(scaled)).residency is None


def test_at25_a_second_look_at_unchanged_numbers_gives_the_same_bytes() -> None:
    before = written()
    assert before.status is not None
    for seconds in (0.2, 5, 14):
        again = serving(before, samples={"agents-1": sample(), "agents-2": sample(age_seconds=1)}, seconds_later=seconds)
        assert summarise(again) == before.status
        assert as_written(summarise(again)) == as_written(before.status)


@pytest.mark.parametrize(
    "drift",
    [
        pytest.param({"host_pool": {"used_bytes": 24 * MIB + 1000}}, id="bytes within the same per cent"),
        pytest.param({"hot": {"hits": 9000, "misses": 1000}}, id="counters at the same rate"),
        pytest.param({"pages": {"dirty": 11}}, id="page states"),
        pytest.param({"engine": {"uptime_seconds": 99.0}}, id="the time that it runs"),
    ],
)
def test_at25_numbers_that_no_column_shows_wait_for_the_next_refresh(drift: dict[str, Any]) -> None:
    before = written(samples={"a": sample()})
    drifted = {"a": sample(answer=report(**drift), age_seconds=-5)}
    assert summarise(serving(before, samples=drifted, seconds_later=5)) == before.status


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"host_pool": {"used_bytes": 25 * MIB}}, ("26%", "90%")),
        ({"hot": {"hits": 1900}}, ("25%", "95%")),
        ({"requests": {"full": 4, "running": 7}}, ("25%", "90%")),
        ({"offload": {"used_bytes": 32 * MIB}}, ("25%", "90%")),
    ],
    ids=str,
)
def test_at25_a_number_that_a_reader_sees_is_written_at_once_with_its_time(
    change: dict[str, Any], shown: tuple[str, str]
) -> None:
    before = written(samples={"a": sample()})
    status = summarise(serving(before, samples={"a": sample(answer=report(**change), age_seconds=-5)}, seconds_later=5))
    assert status != before.status
    assert status.residency is not None
    assert status.residency.observed_at == "2027-03-04T05:06:12Z"
    assert status.summary is not None
    assert (status.summary.used, status.summary.hit) == shown


def test_at25_unchanged_numbers_are_confirmed_after_the_refresh_time() -> None:
    before = written(samples={"a": sample()})
    for seconds, observed_at in ((REFRESH_SECONDS - 1, "2027-03-04T05:06:07Z"), (REFRESH_SECONDS, "2027-03-04T05:06:27Z")):
        status = summarise(serving(before, samples={"a": sample(age_seconds=-seconds)}, seconds_later=seconds))
        assert status.residency is not None
        assert status.residency.observed_at == observed_at


def test_a_status_stays_far_below_what_an_object_may_weigh() -> None:
    many = {f"agents-{number}": sample() for number in range(256)}
    assert len(as_written(summarise(serving(owner(replicas=256), samples=many)))) < 20_000
