"""Sizes of the embedded engine, by hand. A page of the tiny model is 4 layers x 16 tokens x 48 floats = 12 KiB on the host.

On the device each layer is a group of its own; a block holds a layer's 3 KiB or the indexer's 4 KiB: 6 KiB in whole layer pages.
"""

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
from hisparse_runtime.engine.build import EngineOptions, build_settings
from hisparse_runtime.engine.model_config import read_model_config
from hisparse_runtime.policy import HiSparseMemory
from tests.unit.capacity.models import TINY, TINY_CONFIG, TINY_PAGE_BYTES

# The engine's own fields; those that memory depends on are the tiny model's.
_MODEL_CONFIG = {
    **TINY_CONFIG,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_n_heads": 4,
    "vocab_size": 512,
    "intermediate_size": 128,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
}


def test_the_null_block_holds_no_tokens() -> None:
    tiers = embedded_tiers(TINY, max_model_len=64, host_pool_bytes=None, cpu_bytes_to_use=None)
    assert tiers.host_tokens(10 * TINY_PAGE_BYTES) == 9 * 16
    assert tiers.host_tokens(3 * TINY_PAGE_BYTES - 1) == 16
    assert tiers.host_tokens(TINY_PAGE_BYTES) == tiers.host_tokens(0) == 0


def test_a_resident_page_takes_a_device_block_in_each_group_and_one_for_its_indexer_keys() -> None:
    # 8 MiB / 6 KiB = 1,365 blocks, 1,364 without the null block: 272 pages in four groups, and their indexer pages
    assert device_pool_tokens(TINY, device_pool_bytes=8 << 20) == 272 * 16


def test_the_default_hot_region_is_twice_the_top_k() -> None:
    assert default_device_buffer_rows(TINY) == 128


def test_a_long_request_needs_indexer_pages_a_window_and_a_hot_region() -> None:
    # 256 indexer pages; in four groups 16 + 3 resident pages and 8 blocks of hot region; the null block
    assert minimum_device_blocks(TINY, max_model_len=4096, max_num_batched_tokens=256, device_buffer_rows=128) == 365


def test_a_short_request_needs_a_hot_region_too() -> None:
    # With its prefix on the host it begins with one. 4 indexer pages; in four groups 4 pages and 8 blocks; the null block
    assert minimum_device_blocks(TINY, max_model_len=64, max_num_batched_tokens=256, device_buffer_rows=128) == 53


def test_a_small_device_pool_says_what_it_holds_and_both_ways_out() -> None:
    with pytest.raises(DeviceMemoryError) as caught:
        _check_device(1 << 20, max_model_len=4096)
    assert str(caught.value) == (
        "device pool 1.0 MiB has 170 blocks of 6.0 KiB; one request of engine.maxModelLen 4,096 needs 365 (256 for indexer pages,"
        " 108 for resident pages and a hot region, the null block): raise engine.gpuKVCache to at least 2242560 or lower"
        " engine.maxModelLen to 976"
    )
    assert caught.value.reason == "InsufficientDeviceMemory"
    _check_device(2242560, max_model_len=4096)
    _check_device(1 << 20, max_model_len=976)


def test_a_device_pool_without_a_block_offers_no_shorter_request() -> None:
    with pytest.raises(DeviceMemoryError, match=r"to at least 2242560$"):
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
    options = EngineOptions(
        max_model_len=max_model_len,
        max_num_seqs=4,
        max_num_batched_tokens=max_num_batched_tokens,
        gpu_kv_bytes=device_pool_bytes,
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=1 << 20,
        device_buffer_size=device_buffer_rows,
    )
    settings = build_settings(read_model_config(_MODEL_CONFIG), options)
    HiSparseMemory(settings.policy)


def _check_device(device_pool_bytes: int, *, max_model_len: int) -> None:
    check_embedded_device_pool(
        geometry=TINY,
        device_pool_bytes=device_pool_bytes,
        max_model_len=max_model_len,
        max_num_batched_tokens=256,
        device_buffer_rows=128,
    )
