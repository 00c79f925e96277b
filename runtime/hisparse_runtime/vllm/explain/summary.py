"""What a command line asks for, in a few lines."""

from hisparse_runtime.capacity import CapacityError, EngineRequest, gib_bytes, human_bytes, plan_engine
from hisparse_runtime.capacity.engine_plan import EnginePlan
from hisparse_runtime.geometry import CacheFormatError, ModelConfigError
from hisparse_runtime.vllm.command_line.connectors import OFFLOADING, Connector
from hisparse_runtime.vllm.command_line.meaning import Meaning
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from hisparse_runtime.vllm.explain.offload_rules import offloaded_bytes
from hisparse_runtime.vllm.explain.pool_rules import pool_gib
from hisparse_runtime.vllm.explain.sizes import LINE_NAMES, engine_settings, kv_bytes, sizes_depend_on

Lines = tuple[tuple[str, str], ...]


def summary(meaning: Meaning, knowledge: Knowledge) -> Lines:
    """(what, how much) of the line; sizes where the model, the GPU and its memory are known."""
    return (
        ("model", meaning.line.model or "not given"),
        ("HiSparse", _hisparse(meaning)),
        ("connectors", _connectors(meaning.connector)),
        ("GPUs", _gpus(meaning)),
        *_offload(meaning),
        *_speculation(meaning),
        *_sizes(meaning, knowledge),
    )


def _hisparse(meaning: Meaning) -> str:
    if not meaning.has_hisparse:
        return "off"
    connectors = meaning.hisparse_connectors
    pool = pool_gib(connectors[0]) if len(connectors) == 1 else None
    if pool is None:
        pool = (meaning.hisparse_config or {}).get("host_pool_gib")
    size = meaning.device_buffer_size
    hot = "" if size is None else f", hot regions of {size:,} rows"
    return f"host pool {_plain(pool)} GiB for each replica{hot}" if pool is not None else f"on, without a host pool{hot}"


def _plain(size: object) -> str:
    return f"{size:g}" if isinstance(size, float) else str(size)


def _connectors(top: Connector | None) -> str:
    return "none" if top is None else ", ".join(f"{member.name} ({member.role or 'no role'})" for member in top.members) or "none"


def _gpus(meaning: Meaning) -> str:
    names = {
        "tensor": "--tensor-parallel-size",
        "pipeline": "--pipeline-parallel-size",
        "prefill context": "--prefill-context-parallel-size",
        "data": "--data-parallel-size",
    }
    sizes = {name: meaning.number(option, default=1) for name, option in names.items()}
    parts = ", ".join(f"{name} parallel {size}" for name, size in sizes.items() if size > 1)
    return f"{meaning.num_gpus}{f' ({parts})' if parts else ''}"


def _offload(meaning: Meaning) -> Lines:
    top = meaning.connector
    sizes = [offloaded_bytes(member) for member in top.named(OFFLOADING)] if top is not None else []
    return tuple(("offload tier", human_bytes(size)) for size in sizes if size is not None)


def _speculation(meaning: Meaning) -> Lines:
    config = meaning.speculation
    if not config:
        return ()
    return (("speculation", f"{config.get('method', 'a draft model')}, {config.get('num_speculative_tokens', '?')} tokens"),)


def _sizes(meaning: Meaning, knowledge: Knowledge) -> Lines:
    if not meaning.has_hisparse:
        return ()
    plan = _plan(meaning, knowledge)
    if plan is None:
        return ()
    tokens, now = plan.sizes.max_model_len, plan.concurrency
    memory = kv_bytes(meaning, knowledge)
    origin = " (estimated)" if memory is not None and memory[1] else ""
    return (
        ("KV memory of a GPU", f"{human_bytes(plan.request.settings.gpu_kv_bytes)}{origin}"),
        ("host pool", f"{plan.host.num_blocks:,} blocks, {plan.host.tokens:,} tokens"),
        (
            "requests at once",
            f"{now.steady:.2f} of {tokens:,} tokens a replica, limited by {now.limited_by}; {now.ordinary:.2f} without HiSparse",
        ),
    )


def _plan(meaning: Meaning, knowledge: Knowledge) -> EnginePlan | None:
    memory, device, model = kv_bytes(meaning, knowledge), knowledge.gpu, knowledge.model
    connectors = meaning.hisparse_connectors
    pool = pool_gib(connectors[0]) if len(connectors) == 1 else None
    if memory is None or device is None or model is None or pool is None or sizes_depend_on(meaning):
        return None
    top = meaning.connector
    offloads = [offloaded_bytes(member) for member in top.named(OFFLOADING)] if top is not None else []
    request = EngineRequest(
        model=model,
        settings=engine_settings(meaning, knowledge, gpu=device, gpu_kv_bytes=memory[0]),
        gpu=device,
        host_pool_bytes=gib_bytes(pool),
        cpu_bytes_to_use=next((size for size in offloads if size is not None), 0),
    )
    try:
        return plan_engine(request, names=LINE_NAMES)
    except (CacheFormatError, CapacityError, ModelConfigError):
        return None
