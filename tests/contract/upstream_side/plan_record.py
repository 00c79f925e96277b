"""What is compared: the figures of vLLM's plan in one flat record."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def plan_record(vllm_config: Any, kv_cache_config: Any, specs: Mapping[str, Any]) -> dict[str, Any]:
    """Of a worker's `kv_cache_config` and its cache specs by layer. Bytes, blocks or tokens as the names say; unrounded floats.

    `admission_blocks` has one number per cache group, in vLLM's order: source (on the host), indexer, resident, hot, others.
    """
    interface = import_module("vllm.v1.kv_cache_interface")
    mla = [spec for spec in specs.values() if isinstance(spec, interface.MLAAttentionSpec)]
    sparse = [spec for spec in mla if spec.cache_role is interface.SparseCacheRole.SPARSE]
    indexers = [spec for spec in mla if spec.cache_role is interface.SparseCacheRole.INDEXER]
    device_bytes = max(tensor.size for tensor in kv_cache_config.kv_cache_tensors if not tensor.host_resident)
    record = {
        "block_size": sparse[0].block_size,
        "cache_dtype": vllm_config.cache_config.cache_dtype,
        "row_bytes": sparse[0].page_size_bytes // sparse[0].block_size,
        "num_layers": len(sparse),
        "num_indexer_layers": len(indexers),
        "indexer_page_bytes": sum(spec.page_size_bytes for spec in indexers),
        "bytes_per_block": device_bytes // kv_cache_config.num_blocks,
        "num_gpu_blocks": kv_cache_config.num_blocks,
        "max_num_batched_tokens": vllm_config.scheduler_config.max_num_batched_tokens,
        "max_num_seqs": vllm_config.scheduler_config.max_num_seqs,
        "async_scheduling": vllm_config.scheduler_config.async_scheduling,
        "max_in_flight_tokens": vllm_config.max_in_flight_tokens,
        "max_model_len": vllm_config.model_config.max_model_len,
        "generic_concurrency": vllm_config.cache_config.kv_cache_max_concurrency,
        "kv_cache_size_tokens": vllm_config.cache_config.kv_cache_size_tokens,
        "admission_blocks": [_admission_blocks(vllm_config, group.kv_cache_spec) for group in kv_cache_config.kv_cache_groups],
        "num_other_layers": len(specs) - len(mla) - sum(name.endswith((".hisparse_hot", ".hisparse_resident")) for name in specs),
        "backends": sorted(
            {_backend_name(vllm_config, name) for name in specs if not name.endswith((".hisparse_hot", ".hisparse_resident"))}
        ),
    }
    if vllm_config.attention_config.hisparse_config is None:
        return record
    return record | _hisparse_part(vllm_config, kv_cache_config, interface)


def _hisparse_part(vllm_config: Any, kv_cache_config: Any, interface: Any) -> dict[str, Any]:
    resident = [
        group for group in kv_cache_config.kv_cache_groups if isinstance(group.kv_cache_spec, interface.HiSparseResidentSpec)
    ]
    hot = [group for group in kv_cache_config.kv_cache_groups if isinstance(group.kv_cache_spec, interface.HiSparseHotSpec)]
    layout, runtime = import_module("vllm.v1.hisparse.layout"), import_module("vllm.v1.hisparse.runtime")
    steady = getattr(layout, "get_hisparse_steady_state_concurrency", None)
    return {
        "resident_groups": len(resident),
        "hot_groups": len(hot),
        "layers_per_group": [len(group.layer_names) for group in resident],
        "host_num_blocks": kv_cache_config.hisparse_host_num_blocks,
        "host_block_stride": kv_cache_config.hisparse_host_block_stride,
        "shared_host_pool": kv_cache_config.hisparse_shared_host_pool,
        "device_buffer_size": runtime.ResolvedHiSparseConfig.from_vllm_config(
            vllm_config, _top_k(vllm_config)
        ).device_buffer_size,
        "hot_blocks_per_request": sum(group.kv_cache_spec.blocks_per_request for group in hot),
        "steady_concurrency": None if steady is None else steady(vllm_config, kv_cache_config),
    }


def _admission_blocks(vllm_config: Any, spec: Any) -> int:
    return int(-(-spec.max_memory_usage_bytes(vllm_config) // spec.page_size_bytes))


def _backend_name(vllm_config: Any, layer: str) -> str:
    return str(vllm_config.compilation_config.static_forward_context[layer].get_attn_backend().get_name())


def _top_k(vllm_config: Any) -> int:
    return int(vllm_config.model_config.hf_config.index_topk)
