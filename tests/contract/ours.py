"""What our planner makes of a case, in the words of the oracle's answer."""

from typing import Any

from hisparse_runtime.capacity import (
    FLAG_NAMES,
    CapacityError,
    DevicePool,
    VllmSettings,
    VllmSizes,
    concurrency,
    hot_region,
    size_vllm,
    vllm_geometry,
)
from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.geometry import CacheFormatError, ModelConfigError, read_model, vllm_version
from tests.contract.cases import Case

_GPUS = {"H200": "H200", "B200": "B200", "RTX_PRO_6000": "RTX PRO 6000"}


def our_answer(case: Case, *, version: str) -> dict[str, Any]:
    """{"plan": …} or {"refused": reason}."""
    try:
        settings = _settings(case, version=version)
        pool_bytes = int(case["host_pool_gib"] * 2**30)
        sizes = size_vllm(read_model(case["config"]), settings, host_pool_bytes=pool_bytes, names=FLAG_NAMES)
        return {"plan": _plan(sizes, pool_bytes)}
    except (CapacityError, CacheFormatError, ModelConfigError) as error:
        return {"refused": str(error)}


def our_ordinary_answer(case: Case, *, version: str, max_model_len: int) -> dict[str, Any]:
    """The plan without HiSparse of a case that vLLM accepts, for a context that it was given or settled on."""
    settings = _settings(case, version=version)
    geometry = vllm_geometry(read_model(case["config"]), settings)
    ordinary = DevicePool(
        geometry=geometry,
        version=settings.version,
        hot=hot_region(geometry, version=settings.version, num_speculative_tokens=0, device_buffer_size=None, names=FLAG_NAMES),
        kv_bytes=settings.gpu_kv_bytes,
        in_flight_tokens=settings.in_flight_tokens,
        ordinary_block_tokens=settings.block_size or geometry.page_tokens,
    )
    return {
        "row_bytes": geometry.row_bytes,
        "num_layers": geometry.num_layers,
        "num_indexer_layers": geometry.num_indexer_layers,
        "bytes_per_block": ordinary.ordinary_block_bytes,
        "num_gpu_blocks": settings.gpu_kv_bytes // ordinary.ordinary_block_bytes,
        "generic_concurrency": ordinary.ordinary_concurrency(max_model_len),
    }


def _settings(case: Case, *, version: str) -> VllmSettings:
    arguments = case["extra_args"]
    return VllmSettings(
        version=vllm_version(version),
        capability=gpu(_GPUS[case["gpu"]]).capability,
        gpu_kv_bytes=case["gpu_kv_bytes"],
        max_model_len=None if case["max_model_len"] == -1 else case["max_model_len"],
        max_num_batched_tokens=case["max_num_batched_tokens"] or (16384 if case["gpu"] == "B200" else 8192),
        max_num_seqs=case["max_num_seqs"] or 1024,
        kv_cache_dtype=case["kv_cache_dtype"],
        num_speculative_tokens=case["num_speculative_tokens"],
        device_buffer_size=case["device_buffer_size"],
        async_scheduling=case["async_scheduling"] is not False,
        tensor_parallel_size=case["tensor_parallel_size"],
        data_parallel_size=case["data_parallel_size"],
        block_size=case["block_size"],
        prefill_context_parallel_size=2 if "--prefill-context-parallel-size" in arguments else 1,
        distributed_executor_backend="mp" if "--distributed-executor-backend" not in arguments else "external_launcher",
    )


def _plan(sizes: VllmSizes, pool_bytes: int) -> dict[str, Any]:
    host = sizes.host_pool(pool_bytes, names=FLAG_NAMES)
    geometry, tokens = sizes.geometry, sizes.max_model_len
    now = concurrency(sizes, host_blocks=host.num_blocks, tokens=tokens)
    return {
        "block_size": geometry.page_tokens,
        "row_bytes": geometry.row_bytes,
        "num_layers": geometry.num_layers,
        "num_indexer_layers": geometry.num_indexer_layers,
        "resident_groups": geometry.num_groups,
        "hot_groups": geometry.num_groups,
        "layers_per_group": list(geometry.layers_per_group),
        "indexer_page_bytes": geometry.indexer_page_bytes,
        "bytes_per_block": geometry.device_block_bytes,
        "num_gpu_blocks": sizes.device.num_blocks,
        "host_num_blocks": host.num_blocks,
        "host_block_stride": host.stride_bytes,
        "shared_host_pool": sizes.settings.shares_host_pool,
        "device_buffer_size": sizes.hot.rows,
        "hot_blocks_per_request": sizes.hot.blocks_per_request,
        "max_in_flight_tokens": sizes.settings.in_flight_tokens,
        "max_model_len": tokens,
        "generic_concurrency": now.generic,
        "steady_concurrency": now.steady,
    }
