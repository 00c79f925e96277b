"""Sizes of the embedded engine, by hand. A page of the tiny model is 4 layers x 16 tokens x 48 floats = 12 KiB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.capacity import (
    SPEC_NAMES,
    CapacityError,
    DeviceMemoryError,
    check_embedded_device_pool,
    default_device_buffer_rows,
    device_pool_tokens,
    embedded_tiers,
    host_pool,
    minimum_device_blocks,
)
from hisparse_runtime.policy import plan_limits
from tests.unit.capacity.models import TINY, TINY_PAGE_BYTES


def test_the_null_block_holds_no_tokens() -> None:
    tiers = embedded_tiers(TINY, max_model_len=64, host_pool_bytes=None, cpu_bytes_to_use=None)
    assert tiers.host_tokens(10 * TINY_PAGE_BYTES) == 9 * 16
    assert tiers.host_tokens(3 * TINY_PAGE_BYTES - 1) == 16
    assert tiers.host_tokens(TINY_PAGE_BYTES) == tiers.host_tokens(0) == 0


def test_a_resident_page_takes_two_device_blocks() -> None:
    # 8 MiB / 12 KiB = 682 blocks, 681 without the null block: 340 pages and their indexer pages
    assert device_pool_tokens(TINY, device_pool_bytes=8 << 20) == 340 * 16


def test_the_default_hot_region_is_twice_the_top_k() -> None:
    assert default_device_buffer_rows(TINY) == 128


def test_a_long_request_needs_indexer_pages_a_window_and_a_hot_region() -> None:
    # 256 indexer pages, 16 + 3 resident pages, 8 blocks of hot region, the null block
    assert minimum_device_blocks(TINY, max_model_len=4096, max_num_batched_tokens=256, device_buffer_rows=128) == 284


def test_a_short_request_needs_no_hot_region() -> None:
    # 4 pages resident and their 4 indexer pages are fewer than a window and a hot region
    assert minimum_device_blocks(TINY, max_model_len=64, max_num_batched_tokens=256, device_buffer_rows=128) == 9


def test_a_small_device_pool_says_what_it_holds_and_both_ways_out() -> None:
    with pytest.raises(DeviceMemoryError) as caught:
        _check_device(1 << 20, max_model_len=4096)
    assert str(caught.value) == (
        "device pool 1.0 MiB has 85 blocks of 12.0 KiB; one request of engine.maxModelLen 4,096 needs 284 (256 for indexer pages,"
        " 27 for resident pages and a hot region, the null block): raise engine.gpuKVCache to at least 3489792 or lower"
        " engine.maxModelLen to 912"
    )
    assert caught.value.reason == "InsufficientDeviceMemory"
    _check_device(3489792, max_model_len=4096)
    _check_device(1 << 20, max_model_len=912)


def test_a_device_pool_without_a_block_offers_no_shorter_request() -> None:
    with pytest.raises(DeviceMemoryError, match=r"to at least 3489792$"):
        _check_device(1024, max_model_len=4096)


@given(
    max_model_len=st.integers(1, 8192),
    max_num_batched_tokens=st.integers(1, 4096),
    device_buffer_rows=st.integers(64, 1024),
    device_pool_bytes=st.integers(0, 16 << 20),
    host_pool_bytes=st.integers(0, 16 << 20),
)
def test_the_engine_accepts_what_capacity_accepts(
    max_model_len: int, max_num_batched_tokens: int, device_buffer_rows: int, device_pool_bytes: int, host_pool_bytes: int
) -> None:
    try:
        host_pool(TINY, pool_bytes=host_pool_bytes, is_shared=False, max_model_len=max_model_len, names=SPEC_NAMES)
        check_embedded_device_pool(
            geometry=TINY,
            device_pool_bytes=device_pool_bytes,
            max_model_len=max_model_len,
            max_num_batched_tokens=max_num_batched_tokens,
            device_buffer_rows=device_buffer_rows,
        )
    except CapacityError:
        return
    plan_limits(
        TINY,
        gpu_kv_bytes=device_pool_bytes,
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=1 << 20,
        device_buffer_size=device_buffer_rows,
        max_model_len=max_model_len,
        max_num_seqs=4,
        max_num_batched_tokens=max_num_batched_tokens,
    )


def _check_device(device_pool_bytes: int, *, max_model_len: int) -> None:
    check_embedded_device_pool(
        geometry=TINY,
        device_pool_bytes=device_pool_bytes,
        max_model_len=max_model_len,
        max_num_batched_tokens=256,
        device_buffer_rows=128,
    )
