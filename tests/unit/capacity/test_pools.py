"""What pools hold, by hand. The tiny model's page has 4 layers x 16 tokens x 48 floats = 12 KiB, its indexer page 4 KiB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.capacity import (
    CapacityError,
    DeviceMemoryError,
    HostMemoryError,
    check_device_pool,
    check_host_pool,
    default_device_buffer_rows,
    device_pool_tokens,
    hot_region_blocks,
    minimum_device_blocks,
    minimum_host_blocks,
    pool_tokens,
)
from hisparse_runtime.geometry import embedded_geometry
from hisparse_runtime.policy import plan_limits

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
PAGE_BYTES = 12 * 1024


def test_the_null_block_holds_no_tokens() -> None:
    assert pool_tokens(10 * PAGE_BYTES, block_bytes=PAGE_BYTES, page_tokens=16) == 9 * 16
    assert pool_tokens(PAGE_BYTES, block_bytes=PAGE_BYTES, page_tokens=16) == 0
    assert pool_tokens(0, block_bytes=PAGE_BYTES, page_tokens=16) == 0


def test_a_part_of_a_block_holds_nothing() -> None:
    assert pool_tokens(3 * PAGE_BYTES - 1, block_bytes=PAGE_BYTES, page_tokens=16) == 16


def test_a_resident_page_takes_two_device_blocks() -> None:
    # 8 MiB / 12 KiB = 682 blocks, 681 without the null block: 340 pages and their indexer pages
    assert device_pool_tokens(TINY, device_pool_bytes=8 << 20) == 340 * 16


def test_the_default_hot_region_is_twice_the_top_k() -> None:
    assert default_device_buffer_rows(TINY) == 128
    assert hot_region_blocks(TINY, device_buffer_rows=128) == 8
    assert hot_region_blocks(TINY, device_buffer_rows=129) == 9


def test_the_host_pool_holds_one_longest_request_the_null_block_and_a_copied_tail() -> None:
    assert minimum_host_blocks(TINY, max_model_len=4096) == 258
    assert minimum_host_blocks(TINY, max_model_len=4097) == 259


def test_a_long_request_needs_indexer_pages_a_window_and_a_hot_region() -> None:
    # 256 indexer pages, 16 + 3 resident pages, 8 blocks of hot region, the null block
    assert minimum_device_blocks(TINY, max_model_len=4096, max_num_batched_tokens=256, device_buffer_rows=128) == 284


def test_a_short_request_needs_no_hot_region() -> None:
    # 4 pages resident and their 4 indexer pages are fewer than a window and a hot region
    assert minimum_device_blocks(TINY, max_model_len=64, max_num_batched_tokens=256, device_buffer_rows=128) == 9


def test_a_host_pool_that_is_just_large_enough_passes() -> None:
    check_host_pool(geometry=TINY, host_pool_bytes=258 * PAGE_BYTES, max_model_len=4096)
    with pytest.raises(HostMemoryError):
        check_host_pool(geometry=TINY, host_pool_bytes=258 * PAGE_BYTES - 1, max_model_len=4096)


def test_a_small_host_pool_says_what_it_holds_and_both_ways_out() -> None:
    with pytest.raises(HostMemoryError) as caught:
        check_host_pool(geometry=TINY, host_pool_bytes=1 << 20, max_model_len=4096)
    assert str(caught.value) == (
        "host pool 1.0 MiB holds 85 pages of 16 tokens; maxModelLen 4,096 needs 258:"
        " raise hiSparse.hostPoolGiB to at least 0.003 or lower maxModelLen to 1,328"
    )
    assert caught.value.reason == "InsufficientHostMemory"
    # both ways out are ways out
    check_host_pool(geometry=TINY, host_pool_bytes=int(0.003 * (1 << 30)), max_model_len=4096)
    check_host_pool(geometry=TINY, host_pool_bytes=1 << 20, max_model_len=1328)


def test_a_small_device_pool_says_what_it_holds_and_both_ways_out() -> None:
    with pytest.raises(DeviceMemoryError) as caught:
        _check_device(1 << 20, max_model_len=4096)
    assert str(caught.value) == (
        "device pool 1.0 MiB has 85 blocks of 12.0 KiB; one request of maxModelLen 4,096 needs 284 (256 for indexer pages, 27"
        " for resident pages and a hot region, the null block): raise engine.gpuKVCache to at least 3489792 or lower"
        " maxModelLen to 912"
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
        check_host_pool(geometry=TINY, host_pool_bytes=host_pool_bytes, max_model_len=max_model_len)
        check_device_pool(
            geometry=TINY,
            device_pool_bytes=device_pool_bytes,
            max_model_len=max_model_len,
            max_num_batched_tokens=max_num_batched_tokens,
            device_buffer_rows=device_buffer_rows,
        )
    except CapacityError:
        return
    limits = plan_limits(
        TINY,
        gpu_kv_bytes=device_pool_bytes,
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=1 << 20,
        device_buffer_size=device_buffer_rows,
        max_model_len=max_model_len,
        max_num_seqs=16,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    assert limits.num_host_blocks == host_pool_bytes // PAGE_BYTES


def _check_device(device_pool_bytes: int, *, max_model_len: int) -> None:
    check_device_pool(
        geometry=TINY,
        device_pool_bytes=device_pool_bytes,
        max_model_len=max_model_len,
        max_num_batched_tokens=256,
        device_buffer_rows=128,
    )
