"""Sizes that vLLM refuses when it builds the model or plans its KV caches, found by capacity's own code."""

from collections.abc import Iterator
from dataclasses import replace

from hisparse_runtime.capacity import (
    MAX_DEVICE_BUFFER_ROWS,
    CapacityError,
    DeviceMemoryError,
    HostMemoryError,
    SettingsError,
    VllmSettings,
    VllmSizes,
    gib_bytes,
    hot_region,
    longest_that,
    minimum_host_blocks,
    size_vllm,
)
from hisparse_runtime.capacity.gpus import Gpu, check_resolver_shared_memory, gpu
from hisparse_runtime.capacity.host_pool import gib_at_least
from hisparse_runtime.geometry import (
    VLLM_PAGE_TOKENS,
    CacheFormatError,
    ModelConfigError,
    SparseMlaModel,
    lay_out,
    vllm_cache_format,
)
from hisparse_runtime.vllm.command_line.connectors import OFFLOADING, TIERING_SPEC
from hisparse_runtime.vllm.command_line.edits import Edit, Json, in_order, with_json, with_option, without_option
from hisparse_runtime.vllm.command_line.meaning import ATTENTION, KV_TRANSFER, Meaning
from hisparse_runtime.vllm.explain.findings import Rejection, Stage
from hisparse_runtime.vllm.explain.hisparse_rules import without_hisparse_options
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from hisparse_runtime.vllm.explain.model_rules import speculation_with_tokens
from hisparse_runtime.vllm.explain.offload_rules import offloaded_bytes
from hisparse_runtime.vllm.explain.pool_rules import UNFITTED, pool_gib, resized_pool
from hisparse_runtime.vllm.explain.sizes import LINE_NAMES, engine_settings, kv_bytes, sizes_depend_on

_BLOCK, _CONTEXT, _DTYPE = "--block-size", "--max-model-len", "--kv-cache-dtype"
_NO_BACKEND = "No valid attention backend found"
# FlashInfer's kernels there take pages of 32 tokens, which the indexer's do not: found out one step later.
_HALF_PAGE_TOKENS = 32
_PACKED = ("fp8_ds_mla", "nvfp4_ds_mla")
_ANY_GPU = "H200"
_CHECKS_BUFFER_IN_SEARCH = frozenset({"0.30"})


def size_rejections(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    """For a line with HiSparse. Without a GPU, only what does not depend on it."""
    yield from _kind_of_model(knowledge)
    if sizes_depend_on(meaning) or knowledge.has_linear_attention:
        return
    yield from _block_size(meaning, knowledge)
    model, device = knowledge.model, knowledge.gpu
    if model is not None:
        yield from _hot_region(meaning, knowledge, model)
        if device is not None and device.supported:
            yield from _pools(meaning, knowledge, model, device)


def _kind_of_model(knowledge: Knowledge) -> Iterator[Rejection]:
    if knowledge.is_deepseek_v4:
        yield _rejection(
            "DeepSeekV4",
            "",
            "model_type deepseek_v4: HiSparse does not support it, up to 0.33",
            says="HiSparse does not support DeepSeek V4",
        )
    if knowledge.has_linear_attention and not knowledge.is_known_to_lack_topk:
        yield _rejection(
            "LinearAttention",
            "",
            "the model has layers of linear attention, whose caches HiSparse cannot lay out beside its own, up to 0.33",
            says="KV cache layout",
            edit=without_hisparse_options(),
        )


def _pools(meaning: Meaning, knowledge: Knowledge, model: SparseMlaModel, device: Gpu) -> Iterator[Rejection]:
    memory = kv_bytes(meaning, knowledge)
    # without KV memory, all that it decides is taken for large enough
    settings = engine_settings(meaning, knowledge, gpu=device, gpu_kv_bytes=memory[0] if memory else device.memory_bytes)
    pool = pool_gib(meaning.hisparse_connectors[0]) if len(meaning.hisparse_connectors) == 1 else None
    try:
        # before anything else, as sizes come in another order
        vllm_cache_format(model, kv_cache_dtype=settings.kv_cache_dtype, capability=device.capability, version=knowledge.version)
        sizes = size_vllm(model, settings, host_pool_bytes=None if pool is None else gib_bytes(pool), names=LINE_NAMES)
    except CacheFormatError as error:
        yield _format_rejection(error, device, settings)
    except DeviceMemoryError as error:
        yield _device_rejection(error, model, settings)
    except (CapacityError, ModelConfigError):
        return  # a rule of its own has named it
    else:
        if pool is not None:
            yield from _host_pool(pool, sizes, meaning)
        yield from _offload(meaning, sizes)
        yield from _resolver(meaning, sizes, device)


def _block_size(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    size = meaning.value(_BLOCK)
    if not isinstance(size, int) or (size > 0 and size % VLLM_PAGE_TOKENS == 0):
        return
    if size <= 0:
        yield Rejection(
            code="OutOfBounds",
            stage=Stage.CONFIG,
            option=_BLOCK,
            message=f"{_BLOCK} {size} is not above zero",
            says="Input should be greater than 0",
            edit=without_option(_BLOCK),
        )
        return
    is_found_late = (
        knowledge.gpu is not None
        and knowledge.gpu.capability[0] == 10
        and size % _HALF_PAGE_TOKENS == 0
        and meaning.value(_DTYPE) not in _PACKED
    )
    yield Rejection(
        code="BlockSize",
        stage=Stage.PLANNING if is_found_late else Stage.MODEL,
        option=_BLOCK,
        message=f"{_BLOCK} {size}: the indexer's kernels read pages of {VLLM_PAGE_TOKENS} tokens: use a multiple or leave it out",
        says="HiSparse requires a GPU block size" if is_found_late else _NO_BACKEND,
        edit=without_option(_BLOCK),
    )


def _hot_region(meaning: Meaning, knowledge: Knowledge, model: SparseMlaModel) -> Iterator[Rejection]:
    """Its bounds depend on the top-K alone, so any GPU's format does."""
    device = gpu(_ANY_GPU)
    tokens, size = meaning.num_mtp_tokens, meaning.device_buffer_size
    if tokens and not model.num_mtp_layers:
        return
    try:
        cache_format = vllm_cache_format(model, kv_cache_dtype="auto", capability=device.capability, version=knowledge.version)
        geometry = lay_out(model, cache_format, with_mtp=tokens > 0)
        hot_region(geometry, version=knowledge.version, num_speculative_tokens=tokens, device_buffer_size=size, names=LINE_NAMES)
    except ModelConfigError:
        return
    except SettingsError as error:
        topk_rows = model.topk_buffer_rows if knowledge.version.sizes_by_topk_buffer else model.index_topk
        is_small = size is not None and size < (1 + tokens) * topk_rows
        most_tokens = max(0, MAX_DEVICE_BUFFER_ROWS // topk_rows - 2)
        says = "device_buffer_size must cover every decode query" if is_small else "exceeds the int16 slot-index limit"
        is_searched = meaning.is_context_fitted and knowledge.version.name in _CHECKS_BUFFER_IN_SEARCH
        yield _rejection(
            "DeviceBufferTooSmall" if is_small else "DeviceBufferTooLarge",
            meaning.typed(ATTENTION),
            str(error),
            says=UNFITTED if is_searched else says,
            edit=speculation_with_tokens(most_tokens) if size is None else _default_buffer(),
        )


def _format_rejection(error: CacheFormatError, device: Gpu, settings: VllmSettings) -> Rejection:
    """In 0.30 and 0.31, Hopper's kernel for plain rows is there, and its cache layout is not HiSparse's."""
    has_kernel = device.capability[0] == 9 and settings.kv_cache_dtype == "fp8_e4m3"
    return Rejection(
        code="CacheDtype",
        stage=Stage.PLANNING if has_kernel else Stage.MODEL,
        option=_DTYPE,
        message=str(error),
        says="cannot express this model's mixed page sizes" if has_kernel else _NO_BACKEND,
        edit=None if settings.kv_cache_dtype == "auto" else without_option(_DTYPE),
    )


def _device_rejection(error: DeviceMemoryError, model: SparseMlaModel, settings: VllmSettings) -> Rejection:
    if settings.max_model_len is None:
        return _rejection("GpuTooSmall", _CONTEXT, str(error), says=UNFITTED)
    longest = longest_that(lambda tokens: _fits(model, settings, tokens), most=settings.max_model_len)
    edit = with_option(_CONTEXT, str(longest)) if longest else None
    return _rejection("GpuTooSmall", _CONTEXT, str(error), says="gpu_memory_utilization", edit=edit)


def _fits(model: SparseMlaModel, settings: VllmSettings, tokens: int) -> bool:
    try:
        size_vllm(model, replace(settings, max_model_len=tokens), host_pool_bytes=None, names=LINE_NAMES)
    except DeviceMemoryError:
        return False
    return True


def _host_pool(pool: float, sizes: VllmSizes, meaning: Meaning) -> Iterator[Rejection]:
    try:
        sizes.host_pool(gib_bytes(pool), names=LINE_NAMES)
    except HostMemoryError as error:
        blocks = minimum_host_blocks(sizes.geometry, max_model_len=sizes.max_model_len)
        is_empty = gib_bytes(pool) < sizes.host_stride_bytes
        yield _rejection(
            "PoolTooSmall",
            meaning.typed(KV_TRANSFER),
            str(error),
            says="HiSparse has no allocatable host blocks" if is_empty else "increase host_pool_gib",
            edit=resized_pool(gib_at_least(blocks * sizes.host_stride_bytes)),
        )


def _offload(meaning: Meaning, sizes: VllmSizes) -> Iterator[Rejection]:
    top = meaning.connector
    for member in top.named(OFFLOADING) if top is not None else ():
        size_bytes = offloaded_bytes(member)
        if size_bytes is not None and size_bytes < sizes.offload_chunk_bytes:
            yield Rejection(
                code="OffloadTooSmall",
                stage=Stage.WORKERS,
                option=meaning.typed(KV_TRANSFER),
                message=f"{meaning.typed(KV_TRANSFER)}: cpu_bytes_to_use {size_bytes:,} does not hold one page of indexer keys,"
                f" {sizes.offload_chunk_bytes:,} B for all ranks: bytes are meant, not GiB",
                says="cannot mmap an empty file" if member.extra.get("spec_name") == TIERING_SPEC else "",
            )


def _resolver(meaning: Meaning, sizes: VllmSizes, device: Gpu) -> Iterator[Rejection]:
    settings, hot = sizes.settings, sizes.hot
    if not settings.version.checks_resolver_memory:
        return
    problem = _resolver_problem(device, settings.num_speculative_tokens, topk_rows=hot.topk_rows, rows=hot.rows)
    if problem is None:
        return
    tokens = next(
        (
            fewer
            for fewer in range(settings.num_speculative_tokens, -1, -1)
            if _resolver_problem(device, fewer, topk_rows=hot.topk_rows, rows=(fewer + 2) * hot.topk_rows) is None
        ),
        None,
    )
    edit = None
    if tokens is not None:
        steps = [*([] if meaning.device_buffer_size is None else [_default_buffer()]), speculation_with_tokens(tokens)]
        edit = in_order(steps, what=f"lowered num_speculative_tokens to {tokens}, with vLLM's own device_buffer_size")
    yield Rejection(
        code="ResolverMemory",
        stage=Stage.WORKERS,
        option=meaning.typed(ATTENTION),
        message=problem,
        says="HiSparse residency resolution needs",
        edit=edit,
    )


def _resolver_problem(device: Gpu, tokens: int, *, topk_rows: int, rows: int) -> str | None:
    try:
        check_resolver_shared_memory(device, num_speculative_tokens=tokens, topk_rows=topk_rows, device_buffer_rows=rows)
    except SettingsError as error:
        return str(error)
    return None


def _default_buffer() -> Edit:
    def change(config: Json) -> Json:
        del config["hisparse_config"]["device_buffer_size"]
        if not config["hisparse_config"]:
            del config["hisparse_config"]
        return config

    return with_json(ATTENTION, change, what="left device_buffer_size to vLLM")


def _rejection(code: str, option: str, message: str, *, says: str, edit: Edit | None = None) -> Rejection:
    return Rejection(code=code, stage=Stage.PLANNING, option=option, message=message, says=says, edit=edit)
