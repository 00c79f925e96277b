"""Pools against the container's limit, the node's memory and its NUMA nodes."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.vllm.pod_plan import Mode
from hisparse_runtime.vllm.preflight.checks.memory_limit import check_memory_limit
from hisparse_runtime.vllm.preflight.checks.node_memory import check_huge_pages, check_node_memory
from hisparse_runtime.vllm.preflight.checks.numa import check_numa
from hisparse_runtime.vllm.preflight.container.node import NumaNode, node_memory, numa_nodes
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, Severity
from tests.unit.vllm.preflight.plans import GIB, available, facts, plan, write

_SIZES = st.integers(min_value=0, max_value=2048 * GIB)


def _severity(finding: Finding | None) -> Severity | None:
    return None if finding is None else finding.severity


@pytest.mark.parametrize(
    ("limit_bytes", "severity"),
    [
        (None, None),
        (17 * GIB, None),
        (17 * GIB - 1, Severity.WARNING),
        (14 * GIB, Severity.WARNING),
        (14 * GIB - 1, Severity.REFUSED),
        (0, Severity.REFUSED),
    ],
)
def test_a_limit_has_to_hold_pools_and_working_set_and_should_hold_the_headroom(
    limit_bytes: int | None, severity: Severity | None
) -> None:
    assert _severity(check_memory_limit(plan(), facts(memory_limit_bytes=limit_bytes))) is severity


def test_a_refused_limit_is_said_in_numbers() -> None:
    finding = check_memory_limit(plan(), facts(memory_limit_bytes=13 * GIB))
    assert finding is not None
    assert finding.reason is Reason.HOST_MEMORY_LIMIT_TOO_SMALL
    assert finding.message == (
        "the container may use 13.00 GiB, and needs 14.00 GiB (8.00 GiB host pools + 2.00 GiB offload + 4.00 GiB working set):"
        " set resources.limits.memory of the container to 17.00 GiB, or lower the pools"
    )


@given(pool=_SIZES, copies=st.integers(1, 8), replicas=st.integers(1, 8), offload=_SIZES, limit=_SIZES)
def test_every_copy_of_a_pool_and_every_replicas_tier_counts(
    pool: int, copies: int, replicas: int, offload: int, limit: int
) -> None:
    needed = replicas * (copies * pool + offload) + 4 * GIB
    planned = plan(
        host_pool_bytes=pool,
        host_pool_copies=copies,
        shares_host_pool=copies == 1,
        data_parallel_size=replicas,
        cpu_bytes_to_use=offload,
        memory_bytes=needed + GIB,
    )
    finding = check_memory_limit(planned, facts(memory_limit_bytes=limit))
    assert (_severity(finding) is Severity.REFUSED) == (limit < needed)
    assert (finding is None) == (limit >= needed + GIB)


# 8 GiB / 0.95 = 9,042,036,412.6 bytes
@pytest.mark.parametrize(
    ("available_bytes", "is_refused"), [(9_042_036_413, False), (9_042_036_412, True), (60 * GIB, False), (0, True)]
)
def test_a_pool_may_take_what_vllm_lets_it_take(available_bytes: int, is_refused: bool) -> None:  # noqa: FBT001 - a column
    planned = plan(cpu_bytes_to_use=0, working_set_bytes=0)
    assert (available_bytes * 0.95 < 8 * GIB) is is_refused
    finding = check_node_memory(planned, facts(node=available(available_bytes)))
    assert (finding is not None) is is_refused
    if finding is not None:
        assert "needs 8.42 GiB of available memory" in finding.message


def test_offload_and_working_set_have_to_fit_as_well() -> None:
    assert check_node_memory(plan(), facts(node=available(14 * GIB))) is None
    finding = check_node_memory(plan(), facts(node=available(14 * GIB - 1)))
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.NODE_MEMORY_TOO_SMALL, Severity.REFUSED)
    assert "needs 14.00 GiB (8.00 GiB host pools + 2.00 GiB offload + 4.00 GiB working set)" in finding.message


def test_the_baseline_has_no_host_pool_and_its_tier_has_to_fit() -> None:
    baseline = plan(mode=Mode.OFF, host_pool_bytes=0, cpu_bytes_to_use=10 * GIB, working_set_bytes=0)
    assert check_node_memory(baseline, facts(node=available(10 * GIB))) is None
    assert check_node_memory(baseline, facts(node=available(10 * GIB - 1))) is not None


@given(pool=st.integers(1, 256 * GIB), copies=st.integers(1, 8), replicas=st.integers(1, 8), free=_SIZES)
def test_several_pools_are_checked_as_vllm_does_one_after_the_other(pool: int, copies: int, replicas: int, free: int) -> None:
    left, is_refused = free, False
    for _ in range(copies * replicas):
        is_refused = is_refused or pool > Fraction(95, 100) * left
        left -= pool
    planned = plan(
        host_pool_bytes=pool,
        host_pool_copies=copies,
        shares_host_pool=copies == 1,
        data_parallel_size=replicas,
        cpu_bytes_to_use=0,
        working_set_bytes=0,
    )
    assert (check_node_memory(planned, facts(node=available(free))) is not None) == is_refused


@pytest.mark.parametrize(("huge_pages_bytes", "is_said"), [(0, False), (655 << 20, False), (656 << 20, True), (32 * GIB, True)])
def test_huge_pages_are_said_from_a_hundredth_of_the_node_on(huge_pages_bytes: int, is_said: bool) -> None:  # noqa: FBT001 - a column
    finding = check_huge_pages(plan(), facts(node=available(30 * GIB, huge_pages_bytes=huge_pages_bytes)))
    assert (finding is not None) is is_said
    assert _severity(finding) in (None, Severity.WARNING)


def test_an_engine_without_pools_has_no_use_for_them_either() -> None:
    planned = plan(host_pool_bytes=0, cpu_bytes_to_use=0)
    assert check_huge_pages(planned, facts(node=available(30 * GIB, huge_pages_bytes=32 * GIB))) is None


def _nodes(*sizes_gib: int, allowed: tuple[int, ...]) -> tuple[NumaNode, ...]:
    return tuple(NumaNode(number=n, total_bytes=size * GIB, is_allowed=n in allowed) for n, size in enumerate(sizes_gib))


@pytest.mark.parametrize(
    ("nodes", "reason", "severity"),
    [
        (_nodes(64, allowed=(0,)), None, None),
        (_nodes(8, allowed=(0,)), None, None),  # the whole node is too small: that is said by its memory
        (_nodes(10, 10, allowed=(0, 1)), None, None),
        (_nodes(9, 9, allowed=(0, 1)), Reason.NUMA_SPREAD, Severity.WARNING),
        (_nodes(14, 14, allowed=(1,)), None, None),
        (_nodes(13, 64, allowed=(0,)), Reason.NUMA_MEMORY_TOO_SMALL, Severity.REFUSED),
        (_nodes(6, 7, 64, allowed=(0, 1)), Reason.NUMA_MEMORY_TOO_SMALL, Severity.REFUSED),
        ((), None, None),
    ],
)
def test_pools_have_to_fit_into_the_numa_nodes_that_are_allowed(
    nodes: tuple[NumaNode, ...], reason: Reason | None, severity: Severity | None
) -> None:
    finding = check_numa(plan(), facts(numa_nodes=nodes))
    assert (None if finding is None else finding.reason) is reason
    assert _severity(finding) is severity


def test_a_refused_numa_node_is_named() -> None:
    finding = check_numa(plan(), facts(numa_nodes=_nodes(64, 13, allowed=(1,))))
    assert finding is not None
    assert "NUMA node 1 only, 13.00 GiB of 77.00 GiB" in finding.message


def test_the_nodes_memory_is_read_as_psutil_reads_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        "proc/meminfo",
        "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  600 kB\nHugetlb:  40 kB\nActive(anon): 1 kB\n",
    )
    found = node_memory(tmp_path)
    assert found is not None
    assert (found.total_bytes, found.available_bytes, found.huge_pages_bytes) == (1000 << 10, 600 << 10, 40 << 10)


def test_older_kernels_count_huge_pages_of_one_size(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal: 90000 kB\nMemAvailable: 5 kB\nHugePages_Total:  3\nHugepagesize:  2048 kB\n")
    found = node_memory(tmp_path)
    assert found is not None
    assert found.huge_pages_bytes == 3 * 2048 << 10


def test_memory_that_is_not_told_is_not_judged(tmp_path: Path) -> None:
    assert node_memory(tmp_path) is None
    assert numa_nodes(tmp_path) == ()
    assert check_node_memory(plan(), facts(node=None)) is None
    assert check_huge_pages(plan(), facts(node=None)) is None


def test_numa_nodes_are_those_with_memory_and_the_allowed_ones_are_marked(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/status", "Name:\tpython\nMems_allowed:\t0000000a\nMems_allowed_list:\t1,3-4\n")
    write(tmp_path, "sys/devices/system/node/has_memory", "0-1,4\n")
    for number in (0, 1, 2, 4):
        write(tmp_path, f"sys/devices/system/node/node{number}/meminfo", f"Node {number} MemTotal:       {number + 1} kB\n")
    assert [(node.number, node.total_bytes, node.is_allowed) for node in numa_nodes(tmp_path)] == [
        (0, 1 << 10, False),
        (1, 2 << 10, True),
        (4, 5 << 10, True),
    ]
