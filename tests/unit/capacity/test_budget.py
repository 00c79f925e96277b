"""Memory of a pod becomes pools, by hand and by properties."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.capacity import (
    GIB,
    MIB,
    HostMemoryError,
    fixed_host_pool_bytes,
    human_bytes,
    minimum_host_blocks,
    pod_memory,
    smallest_pod,
    split_budget,
)
from hisparse_runtime.geometry import embedded_geometry

TINY = embedded_geometry(
    {
        "num_hidden_layers": 4,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "index_head_dim": 16,
        "index_topk": 64,
        "max_position_embeddings": 8192,
    }
)
HOST_PAGE_BYTES = 12 * 1024
INDEXER_PAGE_BYTES = 4 * 1024
DEVICE_POOL_BYTES = 8 * MIB


def test_small_pools_have_fixed_slack_and_headroom() -> None:
    needs = pod_memory(282 * MIB, 94 * MIB, device_pool_bytes=8 * MIB)
    assert needs.shm_bytes == (282 + 94 + 64) * MIB
    assert needs.memory_bytes == (440 + 192 + 8 + 64) * MIB
    assert needs.arithmetic == (
        "shared memory: 282.0 MiB host pool + 94.0 MiB offload + 64.0 MiB slack = 440.0 MiB",
        (
            "memory of one pod: 440.0 MiB shared memory + 192.0 MiB working set + 8.0 MiB device pool"
            " + 64.0 MiB headroom = 704.0 MiB"
        ),
    )


def test_large_pools_have_slack_and_headroom_in_proportion() -> None:
    needs = pod_memory(384 * GIB, 128 * GIB, device_pool_bytes=0)
    # 2 % of 512 GiB is 10,485.76 MiB, rounded up to whole MiB in the sum
    assert needs.shm_bytes == (512 * 1024 + 10486) * MIB
    # 3 % of 534,774 MiB of shared memory and 192 MiB of working set is 16,048.98 MiB
    assert needs.memory_bytes == (534774 + 192 + 16049) * MIB


def test_a_budget_splits_into_tiers_of_the_same_number_of_tokens() -> None:
    budget = _split(704 * MIB)
    # 704 - 192 working set - 8 device pool - 64 headroom - 64 slack = 376 MiB = 24,064 pairs of 16 KiB
    assert budget == (282 * MIB, 94 * MIB, 704 * MIB)


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
    assert "has 300.0 MiB: give it more memory, or lower maxModelLen" in str(caught.value)


def test_a_given_host_pool_that_holds_no_request_is_refused_before_memory_is_looked_at() -> None:
    with pytest.raises(HostMemoryError, match="holds 85 pages of 16 tokens"):
        _split(64 * GIB, host_pool_bytes=MIB)


def test_gib_of_the_option_become_whole_bytes() -> None:
    assert fixed_host_pool_bytes(384) == 384 * GIB
    assert fixed_host_pool_bytes(0.1) == 107374182


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
    split = partial(_split, max_model_len=max_model_len, host_pool_bytes=host_pool_bytes, cpu_bytes_to_use=cpu_bytes_to_use)
    least = smallest_pod(
        geometry=TINY,
        device_pool_bytes=DEVICE_POOL_BYTES,
        max_model_len=max_model_len,
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=cpu_bytes_to_use,
    )
    if budget_bytes < least.memory_bytes:
        with pytest.raises(HostMemoryError):
            split(budget_bytes)
        return
    host, offload, memory = split(budget_bytes)
    assert least.memory_bytes <= memory <= budget_bytes
    assert host // HOST_PAGE_BYTES >= minimum_host_blocks(TINY, max_model_len=max_model_len)
    assert host_pool_bytes in {None, host}
    assert cpu_bytes_to_use in {None, offload}
    if host_pool_bytes is None and cpu_bytes_to_use is None:
        assert host // HOST_PAGE_BYTES == offload // INDEXER_PAGE_BYTES
        assert (
            pod_memory(host + HOST_PAGE_BYTES, offload + INDEXER_PAGE_BYTES, device_pool_bytes=DEVICE_POOL_BYTES).memory_bytes
            > budget_bytes
        )
    larger_host, larger_offload, larger_memory = split(budget_bytes + more_bytes)
    assert larger_host >= host
    assert larger_offload >= offload
    assert larger_memory >= memory


@given(
    host_pool_bytes=st.integers(0, 4096 * GIB), cpu_bytes_to_use=st.integers(0, 4096 * GIB), device_pool_bytes=st.integers(0, GIB)
)
def test_at01_pools_fit_into_shared_memory_and_shared_memory_into_the_limit(
    host_pool_bytes: int, cpu_bytes_to_use: int, device_pool_bytes: int
) -> None:
    needs = pod_memory(host_pool_bytes, cpu_bytes_to_use, device_pool_bytes=device_pool_bytes)
    assert host_pool_bytes + cpu_bytes_to_use + 64 * MIB <= needs.shm_bytes
    assert needs.shm_bytes + 192 * MIB + device_pool_bytes + 64 * MIB <= needs.memory_bytes
    assert needs.shm_bytes % MIB == 0
    assert needs.memory_bytes % MIB == 0


def _split(
    budget_bytes: int, *, max_model_len: int = 4096, host_pool_bytes: int | None = None, cpu_bytes_to_use: int | None = None
) -> tuple[int, int, int]:
    budget = split_budget(
        geometry=TINY,
        budget_bytes=budget_bytes,
        device_pool_bytes=DEVICE_POOL_BYTES,
        max_model_len=max_model_len,
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=cpu_bytes_to_use,
    )
    return budget.host_pool_bytes, budget.cpu_bytes_to_use, budget.memory_bytes
