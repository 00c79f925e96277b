"""A plan as the command line and the environment of `vllm serve`: for exec, JSON as one word, numbers as numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hisparse_runtime.capacity import GIB, EnginePlan, VllmSettings, gib_bytes
from hisparse_runtime.vllm.command_line.edits import Json, json_text
from hisparse_runtime.vllm.command_line.transfer_config import hisparse_connector, joined, nixl_connector, offloading_connector
from hisparse_runtime.vllm.dialects import Dialect
from hisparse_runtime.vllm.planned_options import conflicts

_AUTO = "auto"
_WORKER_SHUTDOWN = "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"
RESIDENCY_MODULE = "hisparse_runtime.vllm.telemetry.connector"
_SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_HOST"


class Role(StrEnum):
    """SERVE does everything. DECODE takes the KV of prompts from a PREFILL engine, by NIXL."""

    SERVE = "serve"
    DECODE = "decode"
    PREFILL = "prefill"


class ArgumentsError(ValueError):
    """Such an engine cannot be started; the text has the field and the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    """What an engine is started with. Sizes of tiers are those of one data-parallel replica, as in `settings`.

    `host_pool_gib` None is an engine without HiSparse; `cpu_bytes_to_use` None or 0 one without an offload tier.
    `reports_residency`: with our HiSparseConnector, which the engine's environment then must have.
    `kv_cache_memory_bytes`: of each GPU; None leaves it to profiling and `gpu_memory_utilization`. `shutdown_seconds`: from
    the request to stop until vLLM kills its engine core, running requests and unpinning included; `worker_shutdown_seconds`: for
    workers to unpin host memory.
    `nixl_host`: address of this engine for its peers. `extra`: more options, of which the plan decides none.
    """

    model: str
    settings: VllmSettings
    role: Role = Role.SERVE
    dialect: Dialect = Dialect.CONNECTOR
    host_pool_gib: float | None = None
    reports_residency: bool = False
    cpu_bytes_to_use: int | None = None
    expert_parallel: bool = False
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    served_model_name: str | None = None
    host: str | None = None
    port: int | None = None
    shutdown_seconds: int | None = None
    worker_shutdown_seconds: int | None = None
    nixl_host: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeCommand:
    """For exec: every element of `words` reaches vLLM as it is. `environment` has no secrets."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


def planned_arguments(plan: EnginePlan, *, model: str) -> ServeArguments:
    """An engine as planned, with HiSparse and an offload tier; `replace` for what a plan does not know."""
    return ServeArguments(
        model=model,
        settings=plan.request.settings,
        # exact: a power of two divides
        host_pool_gib=plan.memory.host_pool_bytes / GIB,
        cpu_bytes_to_use=plan.memory.cpu_bytes_to_use,
        worker_shutdown_seconds=plan.times.unpin_seconds,
    )


def without_hisparse(arguments: ServeArguments) -> ServeArguments:
    """The same engine as the baseline: all host memory of the tiers goes to offloading.

    Where ranks cannot share a host pool, each has one, and the baseline gets the memory of all.
    """
    settings = arguments.settings
    copies = 1 if settings.shares_host_pool else settings.ranks_per_replica
    pool_bytes = 0 if arguments.host_pool_gib is None else gib_bytes(arguments.host_pool_gib) * copies
    return replace(arguments, host_pool_gib=None, cpu_bytes_to_use=pool_bytes + (arguments.cpu_bytes_to_use or 0))


def serve_command(arguments: ServeArguments) -> ServeCommand:
    """The command. Raises ArgumentsError."""
    _check(arguments)
    return ServeCommand(
        words=("vllm", "serve", arguments.model, *_options(arguments), *arguments.extra),
        environment=dict(_environment(arguments)),
    )


def _check(arguments: ServeArguments) -> None:
    if arguments.role is Role.PREFILL and arguments.host_pool_gib is not None:
        raise ArgumentsError(
            f"prefill with a host pool of {arguments.host_pool_gib:g} GiB: NIXL cannot send KV that lies on the host in part;"
            " leave host_pool_gib out"
        )
    if arguments.host_pool_gib is not None and not arguments.host_pool_gib > 0:
        raise ArgumentsError(f"host_pool_gib {arguments.host_pool_gib:g} must be above zero, or left out for no HiSparse")
    if arguments.settings.nodes_per_replica > 1:
        raise ArgumentsError(
            f"nodes_per_replica is {arguments.settings.nodes_per_replica}: a replica that spans nodes has a command"
            " for each node, which is not made here"
        )
    found = conflicts(arguments.extra, arguments.settings.version)
    if found:
        raise ArgumentsError(
            "extra: "
            + "; ".join(f"{conflict.typed}: {conflict.reason}" for conflict in found)
            + ": remove from the extra options"
        )


def _options(arguments: ServeArguments) -> Iterator[str]:
    settings = arguments.settings
    yield from _option("--served-model-name", arguments.served_model_name)
    yield from _option("--host", arguments.host)
    yield from _option("--port", arguments.port)
    yield from _option("--tensor-parallel-size", settings.tensor_parallel_size)
    yield from _option("--data-parallel-size", settings.data_parallel_size if settings.data_parallel_size > 1 else None)
    context_ranks = settings.prefill_context_parallel_size
    yield from _option("--prefill-context-parallel-size", context_ranks if context_ranks > 1 else None)
    backend = settings.distributed_executor_backend
    yield from _option("--distributed-executor-backend", backend if backend != "mp" else None)
    if arguments.expert_parallel:
        yield "--enable-expert-parallel"
    yield from _option("--max-model-len", _AUTO if settings.max_model_len is None else settings.max_model_len)
    yield from _option("--max-num-batched-tokens", settings.max_num_batched_tokens)
    yield from _option("--max-num-seqs", settings.max_num_seqs)
    yield from _option("--kv-cache-dtype", settings.kv_cache_dtype)
    yield from _option("--block-size", settings.block_size)
    yield "--async-scheduling" if settings.async_scheduling else "--no-async-scheduling"
    yield from _option("--gpu-memory-utilization", arguments.gpu_memory_utilization)
    yield from _option("--kv-cache-memory-bytes", arguments.kv_cache_memory_bytes)
    yield from _json_option("--attention-config", _attention(arguments))
    yield from _json_option("--kv-transfer-config", joined(list(_connectors(arguments))))
    if settings.num_speculative_tokens:
        yield from _json_option(
            "--speculative-config", {"method": "mtp", "num_speculative_tokens": settings.num_speculative_tokens}
        )
    yield from _option("--shutdown-timeout", arguments.shutdown_seconds)


def _attention(arguments: ServeArguments) -> Json | None:
    if arguments.host_pool_gib is None:
        return None
    hisparse: Json = {}
    if arguments.dialect is Dialect.BRANCH:
        hisparse["host_pool_gib"] = arguments.host_pool_gib
    if arguments.settings.device_buffer_size is not None:
        hisparse["device_buffer_size"] = arguments.settings.device_buffer_size
    return {"hisparse_config": hisparse} if hisparse else None


def _connectors(arguments: ServeArguments) -> Iterator[Json]:
    """HiSparse in front: the first one that has a prefix loads it. The branch puts its own there by itself."""
    if arguments.host_pool_gib is not None and arguments.dialect is Dialect.CONNECTOR:
        module = RESIDENCY_MODULE if arguments.reports_residency else None
        yield hisparse_connector(arguments.host_pool_gib, module=module)
    if arguments.role is not Role.SERVE:
        yield nixl_connector()
    if arguments.cpu_bytes_to_use:
        yield offloading_connector(arguments.cpu_bytes_to_use)


def _environment(arguments: ServeArguments) -> Iterator[tuple[str, str]]:
    if arguments.worker_shutdown_seconds is not None:
        yield _WORKER_SHUTDOWN, str(arguments.worker_shutdown_seconds)
    if arguments.role is not Role.SERVE and arguments.nixl_host is not None:
        yield _SIDE_CHANNEL, arguments.nixl_host


def _option(name: str, value: str | float | None) -> Iterator[str]:
    if value is not None:
        yield name
        yield str(value)


def _json_option(name: str, value: Json | None) -> Iterator[str]:
    if value is not None:
        yield name
        yield json_text(value)
