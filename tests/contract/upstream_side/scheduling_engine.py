"""vLLM's scheduler for a workload's settings, built as its engine core does: arguments, plan of the caches, scheduler."""

import contextlib
import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.contract.trace_models import MODELS
from tests.contract.upstream_side.attention_layers import build_layers
from tests.contract.upstream_side.planner import Workers
from tests.contract.workloads import PAGE_TOKENS, Settings

OFFLOAD_ALIGNMENT_BYTES = 4096
PLENTY_BYTES = 1 << 46  # the number of blocks is given instead
IMPORT_PARAMETER = "do_remote_prefill"  # as NIXL's
IMPORT_MODULE = "tests.contract.upstream_side.scheduling_import"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The parts of an engine core that schedule."""

    vllm_config: Any
    scheduler: Any
    hasher: Callable[[Any], Any] | None

    def add(
        self, name: str, prompt: list[int], *, max_tokens: int, is_imported: bool = False, priority: int = 0, arrival: int = 0
    ) -> None:
        """A new request without a stop token; `arrival` orders requests of one priority."""
        parameters = import_module("vllm.sampling_params").SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=True,
            temperature=0.0,
            extra_args={"kv_transfer_params": {IMPORT_PARAMETER: True}} if is_imported else None,
        )
        self.scheduler.add_request(
            import_module("vllm.v1.request").Request(
                request_id=name,
                prompt_token_ids=prompt,
                sampling_params=parameters,
                pooling_params=None,
                arrival_time=float(arrival),
                priority=priority,
                block_hasher=self.hasher,
            )
        )


def build_engine(settings: Settings, *, hisparse_module: str | None = None, log_stats: bool = False) -> Engine:
    """Refusals of vLLM come through as its own exceptions. `hisparse_module`: where HiSparseConnector is instead of in vLLM."""
    words = _arguments(settings, offload_bytes=_offload_bytes(settings), hisparse_module=hisparse_module)
    vllm_config, kv_cache_config = _plan(words)
    utils = import_module("vllm.v1.core.kv_cache_utils")
    scheduler_block, hash_block = utils.resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    scheduler = vllm_config.scheduler_config.get_scheduler_cls()(
        vllm_config=vllm_config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=import_module("vllm.v1.structured_output").StructuredOutputManager(vllm_config),
        log_stats=log_stats,
        block_size=scheduler_block,
        hash_block_size=hash_block,
    )
    hasher = None
    if vllm_config.cache_config.enable_prefix_caching or scheduler.connector is not None:
        function = import_module("vllm.utils.hashing").get_hash_fn_by_name(vllm_config.cache_config.prefix_caching_hash_algo)
        utils.init_none_hash(function)
        lookahead = getattr(vllm_config, "num_hash_lookahead_tokens", 0)  # 0.33
        hasher = utils.get_request_block_hasher(hash_block, function, *([lookahead] if lookahead else []))
    return Engine(vllm_config=vllm_config, scheduler=scheduler, hasher=hasher)


def _arguments(settings: Settings, *, offload_bytes: int, hisparse_module: str | None = None) -> list[str]:
    """The engine's command line."""
    words = {
        "--model": _model_folder(settings.model),
        "--max-model-len": settings.max_model_len,
        "--max-num-batched-tokens": settings.max_num_batched_tokens,
        "--max-num-seqs": settings.max_num_seqs,
        "--kv-cache-dtype": "fp8",
        "--block-size": PAGE_TOKENS,
        "--num-gpu-blocks-override": settings.gpu_blocks,
        "--scheduling-policy": settings.policy,
    }
    flags = [
        "--skip-tokenizer-init",
        "--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching",
        "--async-scheduling" if settings.steps_in_flight > 1 else "--no-async-scheduling",
    ]
    if settings.num_speculative_tokens:
        flags += [
            "--speculative-config",
            json.dumps({"method": "mtp", "num_speculative_tokens": settings.num_speculative_tokens}),
        ]
    if settings.hot_rows is not None:
        flags += ["--attention-config", json.dumps({"hisparse_config": {"device_buffer_size": settings.hot_rows}})]
    children = _connectors(settings, offload_bytes, hisparse_module)
    if children:
        one = children[0] if len(children) == 1 else _connector("MultiConnector", connectors=children)
        flags += ["--kv-transfer-config", json.dumps(one)]
    return [*(str(word) for pair in words.items() for word in pair), *flags]


def _connectors(settings: Settings, offload_bytes: int, hisparse_module: str | None) -> list[dict[str, Any]]:
    children = []
    if settings.mode == "hisparse":
        module = {} if hisparse_module is None else {"kv_connector_module_path": hisparse_module}
        children.append(_connector("HiSparseConnector", host_pool_gib=_host_pool_gib(settings)) | module)
    if settings.offload_pages is not None:
        children.append(_connector("OffloadingConnector", cpu_bytes_to_use=offload_bytes))
    if settings.imports:
        children.append(_connector("ImportConnector") | {"kv_connector_module_path": IMPORT_MODULE})
    return children


def _connector(name: str, **extra: Any) -> dict[str, Any]:
    return {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}


def _host_pool_gib(settings: Settings) -> float:
    """What vLLM divides into exactly `host_blocks`."""
    if settings.host_blocks is None:
        raise ValueError(f"{settings.mode} needs host_blocks")
    stride = _host_stride_bytes(settings.model, bool(settings.num_speculative_tokens))
    return (settings.host_blocks + 0.5) * stride / 2**30


@functools.cache
def _host_stride_bytes(model: str, has_draft_model: bool) -> int:  # noqa: FBT001  a cache key
    """From a plan with a host pool that is certainly large enough."""
    words = [
        *("--model", _model_folder(model), "--skip-tokenizer-init", "--max-model-len", "4096", "--max-num-seqs", "4"),
        *("--max-num-batched-tokens", "4096", "--kv-cache-dtype", "fp8", "--block-size", str(PAGE_TOKENS)),
        *("--kv-transfer-config", json.dumps(_connector("HiSparseConnector", host_pool_gib=64))),
    ]
    if has_draft_model:
        words += ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": 1})]
    _, kv_cache_config = _plan(words)
    return int(kv_cache_config.hisparse_host_block_stride)


def _offload_bytes(settings: Settings) -> int:
    """What vLLM divides into exactly `offload_pages`."""
    if settings.offload_pages is None:
        return 0
    vllm_config, kv_cache_config = _plan(_arguments(settings, offload_bytes=PLENTY_BYTES))
    config = import_module("vllm.distributed.kv_transfer.kv_connector.v1.offloading.config")
    page_bytes = int(config.build_offloading_config(vllm_config, kv_cache_config).worker_kv_bytes_per_block)
    return settings.offload_pages * -(-page_bytes // OFFLOAD_ALIGNMENT_BYTES) * OFFLOAD_ALIGNMENT_BYTES


def _plan(words: list[str]) -> tuple[Any, Any]:
    engine_args = import_module("vllm.engine.arg_utils").EngineArgs
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    parsed = engine_args.from_cli_args(engine_args.add_cli_args(parser).parse_args(words))
    vllm_config = parsed.create_engine_config()
    import_module("vllm.v1.attention.selector")._cached_get_attn_backend.cache_clear()
    build_layers(vllm_config)
    import_module("vllm.platforms").current_platform.update_block_size_for_backend(vllm_config)
    core = object.__new__(import_module("vllm.v1.engine.core").EngineCore)
    core.model_executor = Workers(vllm_config, kv_bytes=PLENTY_BYTES)
    return vllm_config, core._initialize_kv_caches(vllm_config)


_folders = contextlib.ExitStack()  # removed when the process ends


@functools.cache
def _model_folder(model: str) -> str:
    folder = _folders.enter_context(tempfile.TemporaryDirectory())
    (Path(folder) / "config.json").write_text(json.dumps(MODELS[model]), encoding="utf-8")
    return folder
