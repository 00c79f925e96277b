"""Memory of a pod becomes tiers, by hand and by properties."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.capacity import (
    GIB,
    MIB,
    SPEC_NAMES,
    HostMemoryError,
    PodMemory,
    PodShape,
    Tiers,
    embedded_shape,
    embedded_tiers,
    gib_bytes,
    human_bytes,
    pod_memory,
    smallest_pod,
    split_budget,
    tier_arithmetic,
)
from tests.unit.capacity.models import TINY, TINY_INDEXER_PAGE_BYTES, TINY_PAGE_BYTES

EMBEDDED = embedded_shape(device_pool_bytes=8 * MIB)
# 8 ranks of one replica map the shared pool, and the scheduler with them
SHARED = PodShape(working_set_bytes=50 * GIB, shm_slack_bytes=2 * GIB, mapping_processes=9)


def test_small_pools_have_fixed_slack_and_headroom() -> None:
    needs = pod_memory(282 * MIB, 94 * MIB, EMBEDDED)
    assert needs.shm_bytes == (282 + 94 + 64) * MIB
    assert needs.memory_bytes == (440 + 192 + 8 + 64) * MIB
    assert needs.arithmetic == (
        "shared memory: 282.0 MiB host pool + 94.0 MiB offload + 64.0 MiB slack = 440.0 MiB",
        (
            "memory of one pod: 440.0 MiB shared memory + 192.0 MiB working set + 8.0 MiB device pool"
            " + 64.0 MiB headroom = 704.0 MiB"
        ),
    )


def test_headroom_of_large_pools_holds_the_page_tables_of_all_that_map_them() -> None:
    needs = pod_memory(384 * GIB, 128 * GIB, SHARED)
    assert needs.shm_bytes == 514 * GIB
    # 1 % of 564 GiB, and 9 x 512 GiB / 512 of page tables: 5.64 + 9 GiB
    assert needs.memory_bytes == 564 * GIB + 9 * GIB + (564 * GIB // 100 + MIB - 1) // MIB * MIB
    assert needs.arithmetic[1].endswith("+ 50.00 GiB working set + 14.64 GiB headroom = 578.64 GiB")


@pytest.mark.parametrize(
    ("replicas", "copies", "shm_gib", "private_gib"),
    [
        (1, 0, 10 + 4, 0),  # one pool for the ranks of one replica
        (4, 0, 4 * 10 + 4 * 4, 0),  # a pool and an offload region for each replica
        (8, 1, 8 * 4, 8 * 10),  # DP8 x TP1: every replica pins memory of its own
        (1, 8, 4, 8 * 10),  # eight ranks that cannot share: each pins the full size
        (2, 4, 2 * 4, 2 * 4 * 10),
    ],
)
def test_at02_tiers_multiply_by_replicas_and_private_pools_by_ranks(
    replicas: int, copies: int, shm_gib: int, private_gib: int
) -> None:
    shape = PodShape(
        working_set_bytes=0,
        shm_slack_bytes=0,
        replicas=replicas,
        host_pool_copies=copies or 1,
        shares_host_pool=copies == 0,
        mapping_processes=0,
    )
    needs = pod_memory(10 * GIB, 4 * GIB, shape)
    assert needs.shm_bytes == shm_gib * GIB
    page_tables = private_gib * GIB // 512
    assert needs.memory_bytes == pytest.approx((shm_gib + private_gib) * GIB * 1.01 + page_tables, abs=MIB)


def test_a_budget_splits_into_tiers_of_the_same_number_of_tokens() -> None:
    # 704 - 192 working set - 8 device pool - 64 headroom - 64 slack = 376 MiB = 24,064 pairs of 16 KiB
    assert _split(704 * MIB) == (282 * MIB, 94 * MIB, 704 * MIB)


def test_a_given_host_pool_stays_and_the_offload_tier_matches_it() -> None:
    assert _split(704 * MIB, host_pool_bytes=120 * MIB) == (120 * MIB, 40 * MIB, 488 * MIB)


def test_a_given_host_pool_leaves_the_offload_tier_what_is_left_when_memory_is_short() -> None:
    assert _split(704 * MIB, host_pool_bytes=360 * MIB) == (360 * MIB, 16 * MIB, 704 * MIB)


def test_a_given_offload_tier_stays_and_the_host_pool_takes_the_rest() -> None:
    assert _split(704 * MIB, cpu_bytes_to_use=16 * MIB) == (360 * MIB, 16 * MIB, 704 * MIB)


def test_two_given_tiers_stay_as_they_are() -> None:
    # not a multiple of any page
    assert _split(704 * MIB, host_pool_bytes=100_000_001, cpu_bytes_to_use=7) == (100_000_001, 7, 424 * MIB)


def test_a_budget_below_the_smallest_pod_is_refused_with_its_arithmetic() -> None:
    with pytest.raises(HostMemoryError) as caught:
        _split(300 * MIB)
    # 258 pages: 3,096 KiB and 1,032 KiB, with 64 MiB of slack 69 MiB
    assert str(caught.value).startswith(
        "one pod needs at least 333.0 MiB (shared memory: 3.0 MiB host pool + 1.0 MiB offload + 64.0 MiB slack = 69.0 MiB; "
    )
    assert "has 300.0 MiB: give it more memory, or lower engine.maxModelLen" in str(caught.value)


def test_tiers_say_what_they_hold_and_whose_size_it_is() -> None:
    given_host = replace(_tiers(), host_pool_bytes=120 * MIB)
    assert tier_arithmetic(given_host, host_pool_bytes=120 * MIB, cpu_bytes_to_use=40 * MIB) == (
        "host pool: 120.0 MiB as given, 10,240 blocks of 12.0 KiB, 163,824 tokens",
        "offload: 40.0 MiB tuned, 10,240 blocks of 4.0 KiB, 163,840 tokens",
    )


def test_gib_of_the_option_become_whole_bytes() -> None:
    assert gib_bytes(384) == 384 * GIB
    assert gib_bytes(0.1) == 107374182


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (12 * 1024, "12.0 KiB"),
        (8 * MIB, "8.0 MiB"),
        (GIB, "1.00 GiB"),
        (1536 * GIB, "1,536.00 GiB"),
    ],
)
def test_sizes_read_well(size_bytes: int, text: str) -> None:
    assert human_bytes(size_bytes) == text


@given(
    budget_bytes=st.integers(0, 4096 * GIB),
    more_bytes=st.integers(0, 64 * GIB),
    max_model_len=st.integers(1, 8192),
    host_pool_bytes=st.none() | st.integers(8 * MIB, 2048 * GIB),
    cpu_bytes_to_use=st.none() | st.integers(1, 1024 * GIB),
)
def test_a_split_never_exceeds_its_budget_nor_falls_below_the_minimum_and_grows_with_it(
    budget_bytes: int, more_bytes: int, max_model_len: int, host_pool_bytes: int | None, cpu_bytes_to_use: int | None
) -> None:
    tiers = _tiers(max_model_len, host_pool_bytes=host_pool_bytes, cpu_bytes_to_use=cpu_bytes_to_use)
    least = smallest_pod(tiers, EMBEDDED)
    if budget_bytes < least.memory_bytes:
        with pytest.raises(HostMemoryError):
            split_budget(tiers, EMBEDDED, budget_bytes=budget_bytes, names=SPEC_NAMES)
        return
    pod = split_budget(tiers, EMBEDDED, budget_bytes=budget_bytes, names=SPEC_NAMES)
    assert least.memory_bytes <= pod.memory_bytes <= budget_bytes
    assert host_pool_bytes in {None, pod.host_pool_bytes}
    assert cpu_bytes_to_use in {None, pod.cpu_bytes_to_use}
    if host_pool_bytes is None:
        assert pod.host_pool_bytes // TINY_PAGE_BYTES >= tiers.min_host_blocks
        if cpu_bytes_to_use is None:
            assert pod.host_pool_bytes // TINY_PAGE_BYTES == pod.cpu_bytes_to_use // TINY_INDEXER_PAGE_BYTES
            one_more = pod_memory(pod.host_pool_bytes + TINY_PAGE_BYTES, pod.cpu_bytes_to_use + TINY_INDEXER_PAGE_BYTES, EMBEDDED)
            assert one_more.memory_bytes > budget_bytes
    larger = split_budget(tiers, EMBEDDED, budget_bytes=budget_bytes + more_bytes, names=SPEC_NAMES)
    assert larger.host_pool_bytes >= pod.host_pool_bytes
    assert larger.cpu_bytes_to_use >= pod.cpu_bytes_to_use
    assert larger.memory_bytes >= pod.memory_bytes


_SHAPES = st.builds(
    PodShape,
    working_set_bytes=st.integers(0, 64 * GIB),
    shm_slack_bytes=st.integers(64 * MIB, 2 * GIB),
    device_pool_bytes=st.integers(0, GIB),
    replicas=st.integers(1, 16),
    host_pool_copies=st.just(1),
    mapping_processes=st.integers(1, 17),
) | st.builds(
    PodShape,
    working_set_bytes=st.integers(0, 64 * GIB),
    shm_slack_bytes=st.integers(64 * MIB, 2 * GIB),
    replicas=st.integers(1, 16),
    host_pool_copies=st.integers(1, 16),
    shares_host_pool=st.just(value=False),
    mapping_processes=st.integers(1, 17),
)


@given(host_pool_bytes=st.integers(0, 4096 * GIB), cpu_bytes_to_use=st.integers(0, 4096 * GIB), shape=_SHAPES)
def test_at01_pools_fit_into_shared_memory_and_shared_memory_into_the_limit(
    host_pool_bytes: int, cpu_bytes_to_use: int, shape: PodShape
) -> None:
    needs = pod_memory(host_pool_bytes, cpu_bytes_to_use, shape)
    all_host = host_pool_bytes * shape.replicas * shape.host_pool_copies
    in_shm = cpu_bytes_to_use * shape.replicas + (all_host if shape.shares_host_pool else 0)
    private = 0 if shape.shares_host_pool else all_host
    assert in_shm + shape.shm_slack_bytes <= needs.shm_bytes
    assert needs.shm_bytes + private + shape.working_set_bytes + shape.device_pool_bytes + 64 * MIB <= needs.memory_bytes
    assert needs.shm_bytes % MIB == needs.memory_bytes % MIB == 0


def _tiers(max_model_len: int = 4096, *, host_pool_bytes: int | None = None, cpu_bytes_to_use: int | None = None) -> Tiers:
    return embedded_tiers(TINY, max_model_len=max_model_len, host_pool_bytes=host_pool_bytes, cpu_bytes_to_use=cpu_bytes_to_use)


def _split(budget_bytes: int, *, host_pool_bytes: int | None = None, cpu_bytes_to_use: int | None = None) -> tuple[int, int, int]:
    tiers = _tiers(host_pool_bytes=host_pool_bytes, cpu_bytes_to_use=cpu_bytes_to_use)
    pod: PodMemory = split_budget(tiers, EMBEDDED, budget_bytes=budget_bytes, names=SPEC_NAMES)
    return pod.host_pool_bytes, pod.cpu_bytes_to_use, pod.memory_bytes
