"""Plans and the commands that are made of them: every role, with and without speculation, in every parallel layout."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from hisparse_runtime.capacity import FLAG_NAMES, GIB, EnginePlan, EngineRequest, VllmSettings, plan_engine
from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.geometry import read_model, vllm_version
from hisparse_runtime.vllm.arguments import Role, ServeArguments, planned_arguments, serve_command, without_hisparse
from tests.contract.arguments_lines import MODEL, MODELS, Case

LAYOUTS = {"tp8": (8, 1), "tp4-dp2": (4, 2), "dp8": (1, 8)}
SPECULATIVE_TOKENS = (0, 3)
GPUS = {"H200": "fp8", "B200": "fp8"}
BUDGET_BYTES = 1536 * GIB
KV_BYTES = 24 * GIB


class Rendered(NamedTuple):
    """A command with the plan that it is made of, and the case that asks vLLM about it."""

    plan: EnginePlan
    arguments: ServeArguments
    case: Case


def rendered(version: str) -> list[Rendered]:
    """For one of the releases, in a stable order."""
    return list(_rendered(version))


def _rendered(version: str) -> Iterator[Rendered]:
    for gpu_name, dtype in GPUS.items():
        for layout, (ranks, replicas) in LAYOUTS.items():
            for tokens in SPECULATIVE_TOKENS:
                settings = _settings(version, gpu_name, dtype, ranks=ranks, replicas=replicas, tokens=tokens)
                yield from _roles(f"{gpu_name}-{layout}-mtp{tokens}", "glm-5.3", _plan("glm-5.3", gpu_name, settings))
    settings = _settings(version, "H200", "auto", ranks=8, replicas=1, tokens=1)
    yield from _roles("deepseek-bfloat16", "deepseek-v3.2", _plan("deepseek-v3.2", "H200", settings))
    for name, changed in _variations(settings := _settings(version, "H200", "fp8", ranks=8, replicas=1, tokens=0)):
        plan = _plan("glm-5.3", "H200", changed)
        yield _one(name, "glm-5.3", plan, _arguments(plan))
    yield from _details(_plan("glm-5.3", "H200", settings))


def _roles(name: str, model: str, plan: EnginePlan) -> Iterator[Rendered]:
    arguments = _arguments(plan)
    host_only = replace(arguments, cpu_bytes_to_use=None)
    shapes = {
        "hisparse": host_only,
        "offloading": arguments,
        "decode": replace(host_only, role=Role.DECODE, nixl_host="10.0.0.1"),
        "decode-offloading": replace(arguments, role=Role.DECODE, nixl_host="10.0.0.1"),
        "prefill": replace(host_only, role=Role.PREFILL, host_pool_gib=None, nixl_host="10.0.0.1"),
        "baseline": without_hisparse(arguments),
        "plain": replace(host_only, host_pool_gib=None),
    }
    for shape, shaped in shapes.items():
        yield _one(f"{name}-{shape}", model, plan, shaped)


def _variations(settings: VllmSettings) -> Iterator[tuple[str, VllmSettings]]:
    yield "buffer", replace(settings, device_buffer_size=6144)
    yield "blocks", replace(settings, block_size=128)
    yield "one-step", replace(settings, async_scheduling=False)
    yield "fitted", replace(settings, max_model_len=None)
    yield "rows", replace(settings, kv_cache_dtype="bfloat16")
    yield "context-ranks", replace(settings, tensor_parallel_size=4, prefill_context_parallel_size=2)


def _details(plan: EnginePlan) -> Iterator[Rendered]:
    arguments = _arguments(plan)
    yield _one("kv-bytes", "glm-5.3", plan, replace(arguments, kv_cache_memory_bytes=KV_BYTES), profiled_bytes=GIB)
    named = replace(
        arguments,
        served_model_name="agents",
        host="0.0.0.0",
        port=8000,
        gpu_memory_utilization=0.9,
        shutdown_seconds=120,
        extra=("--enable-auto-tool-choice", "--tool-call-parser", "glm47", "--trust-remote-code"),
    )
    yield _one("named", "glm-5.3", plan, named)
    yield _one("upstream-connector", "glm-5.3", plan, replace(arguments, reports_residency=False))


def _settings(version: str, gpu_name: str, dtype: str, *, ranks: int, replicas: int, tokens: int) -> VllmSettings:
    return VllmSettings(
        version=vllm_version(version),
        capability=gpu(gpu_name).capability,
        gpu_kv_bytes=KV_BYTES,
        max_model_len=131_072,
        max_num_batched_tokens=8192,
        max_num_seqs=256,
        kv_cache_dtype=dtype,
        num_speculative_tokens=tokens,
        tensor_parallel_size=ranks,
        data_parallel_size=replicas,
    )


def _plan(model: str, gpu_name: str, settings: VllmSettings) -> EnginePlan:
    request = EngineRequest(model=read_model(MODELS[model]), settings=settings, gpu=gpu(gpu_name), budget_bytes=BUDGET_BYTES)
    return plan_engine(request, names=FLAG_NAMES)


def _arguments(plan: EnginePlan) -> ServeArguments:
    """As the operator starts it, with our connector."""
    return replace(
        planned_arguments(plan, model=MODEL),
        expert_parallel=plan.request.settings.data_parallel_size > 1,
        reports_residency=True,
    )


def _one(name: str, model: str, plan: EnginePlan, arguments: ServeArguments, *, profiled_bytes: int = KV_BYTES) -> Rendered:
    command = serve_command(arguments)
    device = plan.request.gpu
    assert device is not None
    return Rendered(
        plan,
        arguments,
        {
            "id": f"rendered-{name}",
            "words": list(command.words[1:]),
            "environment": dict(command.environment),
            "gpu": device.name,
            "num_gpus": 8,
            "gpu_kv_bytes": profiled_bytes,
            "model": model,
        },
    )
