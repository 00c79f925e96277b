"""What is accepted from an engine, and what several answers add up to."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from hisparse_operator.telemetry import ResidencyReport, aggregate
from tests.unit.operator.objects import MIB, report, report_values

AT = "2027-03-04T05:06:07Z"


def test_the_answer_of_the_contract_is_read_and_keys_of_a_newer_engine_are_ignored() -> None:
    read = ResidencyReport.model_validate_json(json.dumps({**report_values(), "new": {"of": [1]}}))
    assert (read.engine.version, read.requests.mixed, read.pages.host_only, read.offload.used_bytes) == ("0.1.0", 2, 50, 8 * MIB)
    assert (read.hot.hits, read.hot.misses) == (900, 100)


@pytest.mark.parametrize("part", ["engine", "requests", "pages", "host_pool", "device_pool", "offload", "hot"])
def test_a_missing_part_is_refused(part: str) -> None:
    values = {name: value for name, value in report_values().items() if name != part}
    with pytest.raises(ValidationError, match=part):
        ResidencyReport.model_validate(values)


@pytest.mark.parametrize(
    ("part", "number"),
    [
        ("requests", {"full": -1}),
        ("pages", {"dirty": (1 << 53) + 1}),
        ("host_pool", {"used_bytes": 10**30}),
        ("host_pool", {"capacity_bytes": 1.5}),
        ("hot", {"hits": "many"}),
        ("offload", {"used_bytes": None}),
        ("engine", {"uptime_seconds": -0.1}),
        ("engine", {"version": "x" * 254}),
        ("engine", {"version": 1}),
    ],
    ids=str,
)
def test_a_number_out_of_bounds_is_refused(part: str, number: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(number))):
        report(**{part: number})


def test_what_the_largest_object_reports_at_most_is_still_an_integer_of_the_api() -> None:
    most = {"capacity_bytes": 1 << 53, "used_bytes": 1 << 53}
    total = aggregate([report(host_pool=most)] * 256, observed_at=AT)
    assert total.host_pool.used_bytes == 256 << 53
    assert total.host_pool.used_bytes < 1 << 63


def test_numbers_are_summed_over_pods() -> None:
    other = report(
        requests={"running": 3, "full": 1, "mixed": 0, "none": 2, "waiting": 5},
        pages={"dirty": 1, "pending": 2, "clean_pinned": 3, "unpinned": 4, "host_only": 5},
        host_pool={"used_bytes": 72 * MIB},
        device_pool={"used_bytes": 2 * MIB},
        offload={"capacity_bytes": 96 * MIB, "used_bytes": 0},
        hot={"hits": 0, "misses": 200},
    )
    total = aggregate([report(), other], observed_at=AT)
    assert total.model_dump() == {
        "observed_at": AT,
        "pods_reporting": 2,
        "requests": {"full": 4, "mixed": 2, "none": 3, "waiting": 9},
        "pages": {"dirty": 11, "pending": 22, "clean_pinned": 33, "unpinned": 44, "host_only": 55},
        "host_pool": {"capacity_bytes": 192 * MIB, "used_bytes": 96 * MIB, "used_percent": 50},
        "device_pool": {"capacity_bytes": 16 * MIB, "used_bytes": 8 * MIB, "used_percent": 50},
        "offload": {"capacity_bytes": 128 * MIB, "used_bytes": 8 * MIB, "used_percent": 6},
        "hot": {"hits": 900, "misses": 300, "hit_percent": 75},
    }


def test_percentages_are_those_of_the_sums_not_means() -> None:
    small, large = {"capacity_bytes": 10, "used_bytes": 10}, {"capacity_bytes": 990, "used_bytes": 0}
    assert aggregate([report(host_pool=small), report(host_pool=large)], observed_at=AT).host_pool.used_percent == 1


@pytest.mark.parametrize(
    ("used", "capacity", "percent"),
    [
        (0, 0, 0),
        (0, 1_000_000, 0),
        (1, 1_000_000, 1),
        (999_999, 1_000_000, 99),
        (1_000_000, 1_000_000, 100),
        (2_000_000, 1_000_000, 100),
        (254, 1000, 25),
        (256, 1000, 26),
    ],
)
def test_something_is_never_shown_as_nothing_nor_almost_all_as_all(used: int, capacity: int, percent: int) -> None:
    pool = {"capacity_bytes": capacity, "used_bytes": used}
    assert aggregate([report(device_pool=pool)], observed_at=AT).device_pool.used_percent == percent


@pytest.mark.parametrize(("hits", "misses", "percent"), [(0, 0, None), (0, 7, 0), (7, 0, 100), (1, 999_999, 1)])
def test_hit_percentage_is_absent_before_the_first_lookup(hits: int, misses: int, percent: int | None) -> None:
    assert aggregate([report(hot={"hits": hits, "misses": misses})], observed_at=AT).hot.hit_percent == percent
