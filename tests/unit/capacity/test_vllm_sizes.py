"""What vLLM plans, by hand and against the figures its own planner printed for the published models."""

import pytest

from hisparse_runtime.capacity import (
    FLAG_NAMES,
    GIB,
    DeviceMemoryError,
    HostMemoryError,
    SettingsError,
    VllmSettings,
    VllmSizes,
    pod_shape,
    size_vllm,
)
from hisparse_runtime.geometry import VLLM_VERSIONS, CacheFormatError
from tests.unit.capacity.models import preset_model

KV_BYTES = int(17.8 * GIB)


def sizes(
    model: str = "GLM-5.3",
    *,
    version: str = "0.33",
    capability: tuple[int, int] = (9, 0),
    host_pool_bytes: int | None = None,
    max_model_len: int | None = 131072,
    max_num_batched_tokens: int = 8192,
    kv_cache_dtype: str = "fp8",
    gpu_kv_bytes: int = KV_BYTES,
    num_speculative_tokens: int = 0,
    device_buffer_size: int | None = None,
    async_scheduling: bool = True,
    tensor_parallel_size: int = 8,
    data_parallel_size: int = 1,
    prefill_context_parallel_size: int = 1,
) -> VllmSizes:
    settings = VllmSettings(
        version=VLLM_VERSIONS[version],
        capability=capability,
        gpu_kv_bytes=gpu_kv_bytes,
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=256,
        kv_cache_dtype=kv_cache_dtype,
        num_speculative_tokens=num_speculative_tokens,
        device_buffer_size=device_buffer_size,
        async_scheduling=async_scheduling,
        tensor_parallel_size=tensor_parallel_size,
        data_parallel_size=data_parallel_size,
        prefill_context_parallel_size=prefill_context_parallel_size,
    )
    return size_vllm(preset_model(model), settings, host_pool_bytes=host_pool_bytes, names=FLAG_NAMES)


_PLANNED = {  # settings -> groups, block bytes, GPU blocks, stride bytes, host blocks of 384 GiB, hot blocks, steady concurrency
    ("GLM-5.3", 10, 0): (20, 184_320, 103_692, 2_875_392, 143_395, 1_280, 29.2791),
    ("GLM-5.3", 9, 0): (20, 209_920, 91_047, 3_276_800, 125_829, 1_280, 25.5246),
    ("GLM-5.3", 10, 3): (20, 221_184, 86_410, 2_912_256, 141_579, 3_200, 15.3801),
    ("GLM-5.3", 9, 3): (21, 209_920, 91_047, 3_317_760, 124_275, 3_360, 15.7272),
    ("DeepSeek-V3.2", 9, 1): (6, 545_792, 35_018, 2_605_056, 158_275, 576, 12.7064),
}


@pytest.mark.parametrize(("model", "sm", "mtp"), _PLANNED)
def test_sizes_are_those_of_vllms_own_planner(model: str, sm: int, mtp: int) -> None:
    found = sizes(model, capability=(sm, 0), num_speculative_tokens=mtp)
    host = found.host_pool(384 * GIB, names=FLAG_NAMES)
    assert (
        found.geometry.num_groups,
        found.geometry.device_block_bytes,
        found.device.num_blocks,
        host.stride_bytes,
        host.num_blocks,
        found.hot.blocks_per_request,
        round(found.device.steady_concurrency(131072), 4),
    ) == _PLANNED[model, sm, mtp]


def test_layers_of_a_group_are_packed_up_to_the_indexers_page() -> None:
    assert sizes().geometry.layers_per_group == (2, *(4,) * 19)
    assert sizes("GLM-5.1").geometry.layers_per_group == (15, 15, 15, 15, 15, 3)


def test_the_host_pool_is_shared_by_the_ranks_of_a_replica_where_they_can() -> None:
    assert sizes().settings.shares_host_pool
    assert not sizes(tensor_parallel_size=1, data_parallel_size=8).settings.shares_host_pool
    split = sizes(prefill_context_parallel_size=2)
    assert not split.settings.shares_host_pool
    # private pools need no alignment to pages of memory: 78 x 64 x 656
    assert split.host_stride_bytes == 3_274_752
    assert pod_shape(split.settings).host_pool_copies == 16


def test_a_host_pool_that_holds_one_longest_request_is_the_smallest() -> None:
    found = sizes()
    assert found.host_pool(2050 * 3_276_800, names=FLAG_NAMES).num_blocks == 2050
    with pytest.raises(HostMemoryError) as caught:
        found.host_pool(2050 * 3_276_800 - 1, names=FLAG_NAMES)
    assert str(caught.value) == (
        "host pool 6.26 GiB holds 2,049 blocks of 64 tokens; --max-model-len 131,072 needs 2,050: raise --host-pool-gib to at"
        " least 6.2562 or lower --max-model-len to 131,008"
    )
    # both ways out are ways out
    assert found.host_pool(int(6.2562 * GIB), names=FLAG_NAMES).num_blocks >= 2050
    assert sizes(max_model_len=131_008).host_pool(2049 * 3_276_800, names=FLAG_NAMES).min_blocks == 2049


def test_vllm_0_30_starts_with_any_host_pool() -> None:
    assert sizes(version="0.30").host_pool(3_276_800, names=FLAG_NAMES).num_blocks == 1
    with pytest.raises(HostMemoryError, match="needs 1"):
        sizes(version="0.30").host_pool(3_276_799, names=FLAG_NAMES)


def test_a_gpu_pool_that_holds_one_longest_request_is_the_smallest() -> None:
    # 2,048 indexer pages, 20 x 256 resident ones, 1,280 of hot region, the null block
    needed = (2048 + 5120 + 1280 + 1) * 209_920
    assert sizes(gpu_kv_bytes=needed).device.num_blocks == 8449
    with pytest.raises(DeviceMemoryError) as caught:
        sizes(gpu_kv_bytes=needed - 1)
    assert str(caught.value) == (
        "GPU KV memory 1.65 GiB has 8,448 blocks of 205.0 KiB; one request of --max-model-len 131,072 needs 8,448 and the null"
        " block (2,048 indexer pages, 20 x 256 resident pages, a hot region of 1,280): raise --gpu-kv-gib to at least 1.65 GiB,"
        " lower --max-model-len to 131,008, or lower --max-num-batched-tokens"
    )
    assert sizes(gpu_kv_bytes=needed - 1, max_model_len=131_008).max_model_len == 131_008


def test_a_context_is_fitted_to_both_pools() -> None:
    assert sizes(max_model_len=None).max_model_len == 1_048_576
    assert sizes(max_model_len=None, gpu_kv_bytes=2 * GIB, max_num_batched_tokens=2048).max_model_len == 490_816
    # 99 blocks hold a request of 97 pages, the null block and a copied tail
    assert sizes(max_model_len=None, host_pool_bytes=99 * 3_276_800).max_model_len == 97 * 64
    with pytest.raises(DeviceMemoryError, match=r"--max-model-len cannot be fitted: GPU KV memory 256\.0 MiB"):
        sizes(max_model_len=None, gpu_kv_bytes=256 * 2**20)


def test_a_hot_region_holds_what_one_step_selects() -> None:
    assert sizes(num_speculative_tokens=3).hot.rows == 5 * 2048
    assert sizes(num_speculative_tokens=3, device_buffer_size=8192).hot.rows == 8192
    with pytest.raises(SettingsError) as caught:
        sizes(num_speculative_tokens=3, device_buffer_size=8191)
    assert str(caught.value) == (
        "--device-buffer-size 8,191 does not hold the rows that one step selects: 4 x top-K 2,048 = 8,192: raise it to at least"
        " 8,192, or leave it out for 10,240"
    )
    assert sizes(device_buffer_size=4100).hot.padding_rows == 60


def test_a_hot_region_has_at_most_so_many_rows_as_16_bits_number() -> None:
    assert sizes(num_speculative_tokens=14).hot.rows == 32_768
    with pytest.raises(SettingsError, match=r"at most 32,768 rows: lower --device-buffer-size to at most 32,768 or lower"):
        sizes(num_speculative_tokens=15)
    with pytest.raises(SettingsError, match=r"32,769.*lower --device-buffer-size to at most 32,768$"):
        sizes(device_buffer_size=32_769)


def test_a_kv_cache_dtype_without_a_kernel_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(CacheFormatError, match=r"'nvfp4_ds_mla'.*9\.0; use one of auto, bfloat16, fp8, fp8_ds_mla"):
        sizes(kv_cache_dtype="nvfp4_ds_mla")
    with pytest.raises(CacheFormatError, match=r"compute capability 8\.0"):
        sizes(capability=(8, 0))


def test_a_context_longer_than_the_model_has_positions_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"--max-model-len is 202,753 and the model's max_position_embeddings 202,752"):
        sizes("GLM-5.1", max_model_len=202_753)


def test_in_flight_tokens_decide_what_admission_takes() -> None:
    assert sizes(async_scheduling=False).device.request(131072).resident_admitted == 20 * 128
    assert sizes(async_scheduling=True).device.request(131072).resident_admitted == 20 * 256
    # 0.30 counts the whole context
    assert sizes(version="0.30").device.request(131072).resident_admitted == 20 * 2048
