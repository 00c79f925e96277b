import pytest

from hisparse_runtime.geometry import embedded_geometry
from hisparse_runtime.policy import Limits, PoolTooSmallError, plan_limits

# A row is (32 + 16) x 4 = 192 bytes, a host page 4 x 16 x 192 = 12,288, an indexer page 4 x 16 x 16 x 4 = 4,096.
GEOMETRY = embedded_geometry(
    {
        "num_hidden_layers": 4,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "index_head_dim": 16,
        "index_topk": 64,
        "max_position_embeddings": 8192,
    }
)


def plan(
    *,
    gpu_kv_bytes: int = 12288 * 200,
    host_pool_bytes: int = 12288 * 200,
    max_model_len: int = 1024,
    device_buffer_size: int | None = None,
) -> Limits:
    return plan_limits(
        GEOMETRY,
        gpu_kv_bytes=gpu_kv_bytes,
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=4096 * 100,
        device_buffer_size=device_buffer_size,
        max_model_len=max_model_len,
        max_num_seqs=4,
        max_num_batched_tokens=128,
    )


def test_sizes_in_blocks() -> None:
    limits = plan(gpu_kv_bytes=12288 * 200 + 12287)
    assert (limits.num_device_blocks, limits.num_host_blocks, limits.num_offload_blocks) == (200, 200, 100)
    assert (limits.hot_rows, limits.hot_blocks) == (128, 8)
    assert limits.window_pages == 8 + 1 + 2
    assert limits.watermark_blocks == 20


def test_watermark_is_at_least_one_hot_region() -> None:
    assert plan(max_model_len=512, gpu_kv_bytes=12288 * 60).watermark_blocks == 8


def test_host_pool_below_one_request_says_what_to_change() -> None:
    with pytest.raises(PoolTooSmallError) as refusal:
        plan(host_pool_bytes=12288 * 10)
    # 64 pages and the null block: 65 x 12,288 / 2^30 = 0.00074 GiB, rounded up
    assert str(refusal.value) == (
        "host pool 0.1 MiB holds 9 pages; --max-model-len 1024 needs 64: raise --host-pool-gib to at least 0.0008 "
        "or lower --max-model-len to 144"
    )
    assert plan(host_pool_bytes=int(0.0008 * 2**30)).num_host_blocks >= 65
    assert plan(host_pool_bytes=12288 * 10, max_model_len=144).num_host_blocks == 10


def test_device_pool_below_one_request_says_what_to_change() -> None:
    with pytest.raises(PoolTooSmallError) as refusal:
        plan(gpu_kv_bytes=12288 * 60)
    # 64 indexer pages, a window of 11 and a hot region of 8: 83, and the null block
    assert "holds 59 blocks; --max-model-len 1024 needs 83" in str(refusal.value)
    assert f"raise --gpu-kv-bytes to at least {84 * 12288} or lower --max-model-len to 640" in str(refusal.value)
    assert plan(gpu_kv_bytes=84 * 12288).num_device_blocks == 84
    assert plan(gpu_kv_bytes=12288 * 60, max_model_len=640).num_device_blocks == 60
    with pytest.raises(PoolTooSmallError):
        plan(gpu_kv_bytes=12288 * 60, max_model_len=641)


def test_hot_region_below_one_selection_is_refused() -> None:
    with pytest.raises(PoolTooSmallError, match=r"--device-buffer-size 63 is less than index_topk 64.*use at least 64"):
        plan(device_buffer_size=63)
    assert plan(device_buffer_size=64).hot_blocks == 4
