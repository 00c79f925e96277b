"""What is compared of a parsed command line: the settings that a plan decides, as vLLM's configuration holds them."""

import copy
from importlib import import_module
from typing import Any


def config_record(parsed: Any, config: Any) -> dict[str, Any]:
    """`parsed` from the command line, `config` what vLLM made of it. `host_pool_gib` is an error's text where it has none."""
    cache, parallel, scheduler = config.cache_config, config.parallel_config, config.scheduler_config
    speculation, transfer, hisparse = (
        config.speculative_config,
        config.kv_transfer_config,
        config.attention_config.hisparse_config,
    )
    return {
        "served_model_name": parsed.served_model_name,
        "host": parsed.host,
        "port": parsed.port,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "data_parallel_size": parallel.data_parallel_size,
        "prefill_context_parallel_size": parallel.prefill_context_parallel_size,
        "expert_parallel": parallel.enable_expert_parallel,
        "distributed_executor_backend": str(parallel.distributed_executor_backend),
        "kv_cache_dtype": parsed.kv_cache_dtype,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "kv_cache_memory_bytes": cache.kv_cache_memory_bytes,
        "prefix_caching": cache.enable_prefix_caching,
        "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
        "hybrid_kv_cache_manager": not scheduler.disable_hybrid_kv_cache_manager,
        "cudagraph_mode": config.compilation_config.cudagraph_mode.name,
        "num_speculative_tokens": 0 if speculation is None else speculation.num_speculative_tokens,
        "hisparse": hisparse is not None,
        "device_buffer_size_given": None if hisparse is None else hisparse.device_buffer_size,
        "eager_host_mirror": None if hisparse is None else hisparse.eager_host_mirror,
        "connectors": [] if transfer is None else _connectors(transfer),
        "host_pool_gib": _host_pool_gib(transfer),
        "shutdown_timeout": config.shutdown_timeout,
        "worker_shutdown_timeout": import_module("vllm.envs").VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS,
    }


def _connectors(transfer: Any) -> list[dict[str, Any]]:
    """In the order in which vLLM asks them. Copies, since starting them changes their settings."""
    extra = copy.deepcopy(transfer.kv_connector_extra_config)
    if transfer.kv_connector != "MultiConnector":
        return [{"name": transfer.kv_connector, "role": transfer.kv_role, "extra": extra}]
    return [
        {"name": child["kv_connector"], "role": child["kv_role"], "extra": child.get("kv_connector_extra_config", {})}
        for child in extra["connectors"]
    ]


def _host_pool_gib(transfer: Any) -> float | str | None:
    try:
        found: float | None = import_module("vllm.config.kv_transfer").hisparse_host_pool_gib(transfer)
    except (TypeError, ValueError) as error:
        return str(error)
    return found
