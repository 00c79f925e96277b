"""`hisparse plan`: what vLLM will allocate with HiSparse, and how many requests that serves, before any pod exists."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hisparse_runtime.capacity import DEFAULT_GPU_MEMORY_UTILIZATION, gib_bytes
from hisparse_runtime.cli.plan.answer import refused_early
from hisparse_runtime.cli.plan.case import Case, RefusedError
from hisparse_runtime.cli.plan.flags import PlanFlags, case_from_flags
from hisparse_runtime.cli.plan.model import ModelFileError, read_model_files
from hisparse_runtime.cli.plan.output import OutputFormat
from hisparse_runtime.cli.plan.run import FIGURE_SUFFIXES, CaseMaker, Display, FigureError, show_answer, show_comparison, show_one
from hisparse_runtime.cli.plan.units import compared, context, gib, quantity_bytes
from hisparse_runtime.geometry import NEWEST_VERSION

_what = partial(typer.Option, rich_help_panel="What to plan")
_engine = partial(typer.Option, rich_help_panel="vLLM's own options")
_memory = partial(typer.Option, rich_help_panel="Memory")
_output = partial(typer.Option, rich_help_panel="Output")
# Options that are about the plan and not about the engine, which a file describes.
_WITH_FILE = frozenset({"filename", "node_memory", "compare", "plot", "output", "explain"})
# Options that the published calculator has a place for.
_AS_PUBLISHED = frozenset({
    "as_published", "model", "gpu", "kv_cache_dtype", "tensor_parallel_size", "data_parallel_size", "expert_parallel",
    "max_model_len", "max_num_seqs", "device_buffer_size", "gpu_kv_gib", "host_pool_gib", "cpu_bytes_to_use", "node_memory",
    "compare", "output",
})  # fmt: skip

Value = TypeVar("Value")
Entries = tuple[int, ...] | tuple[str, ...] | None


def plan(
    ctx: typer.Context,
    *,
    filename: Annotated[
        Path | None,
        _what("-f", "--filename", metavar="FILE", help="A HiSparseDeployment in YAML; - for standard input."),
    ] = None,
    model: Annotated[str | None, _what(metavar="NAME", help="A known model, such as zai-org/GLM-5.3.")] = None,
    model_config: Annotated[
        Path | None,
        _what(
            metavar="FILE",
            help="The model's config.json, or the folder with it; a safetensors index beside it gives the bytes of the weights."
            " With --model, what it leaves out is filled in.",
        ),
    ] = None,
    gpu: Annotated[str, _what(metavar="KIND", help="Kind of GPU: decides the KV row format and the estimate.")] = "H200",
    gpus_per_node: Annotated[int | None, _what(min=1, metavar="N", help="Default: as in the usual server.")] = None,
    kv_cache_dtype: Annotated[str, _engine(metavar="DTYPE", help="auto, fp8, bfloat16, ...")] = "auto",
    tensor_parallel_size: Annotated[
        int | None,
        _engine(min=1, metavar="N", help="GPUs of one replica. Default: all of a node, shared by the replicas."),
    ] = None,
    data_parallel_size: Annotated[int, _engine(min=1, metavar="N", help="Replicas, each with pools of its own.")] = 1,
    expert_parallel: Annotated[
        bool, _engine("--expert-parallel/--no-expert-parallel", help="Whole routed experts on each GPU, or a slice of each.")
    ] = True,
    max_model_len: Annotated[
        str | None,
        _engine(
            metavar="TOKENS",
            help="Longest request: 142000, 64K for 65,536, auto for the longest that fits. Default: the model's longest.",
        ),
    ] = None,
    max_num_batched_tokens: Annotated[int, _engine(min=1, metavar="TOKENS", help="Most tokens of one step.")] = 8192,
    max_num_seqs: Annotated[int, _engine(min=1, metavar="N", help="Most requests that run at once.")] = 256,
    num_speculative_tokens: Annotated[int, _engine(min=0, metavar="N", help="Draft tokens of MTP speculation.")] = 0,
    device_buffer_size: Annotated[
        int | None,
        _engine(min=1, metavar="ROWS", help="Rows of a hot region. Default: (speculative tokens + 2) x top-K."),
    ] = None,
    async_scheduling: Annotated[
        bool,
        _engine("--async-scheduling/--no-async-scheduling", help="Two steps in flight, or one."),
    ] = True,
    gpu_memory_utilization: Annotated[
        float, _engine(min=0.01, max=1, metavar="SHARE", help="Of each GPU, for the estimate.")
    ] = DEFAULT_GPU_MEMORY_UTILIZATION,
    vllm_version: Annotated[str, _engine(metavar="VERSION", help="0.30 to 0.33.")] = NEWEST_VERSION.name,
    gpu_kv_gib: Annotated[
        str | None,
        _memory(metavar="GIB", help="KV memory on each GPU, from vLLM's log. Default: estimated."),
    ] = None,
    host_pool_gib: Annotated[
        str | None,
        _memory(metavar="GIB", help="Host pool of each replica. Default: what the GPU side can use."),
    ] = None,
    cpu_bytes_to_use: Annotated[
        str | None,
        _memory(metavar="BYTES", help="Offload tier of each replica: bytes or 128Gi. Default: as many tokens as the host pool."),
    ] = None,
    node_memory: Annotated[
        str | None,
        _memory(metavar="BYTES", help="What one pod may have, such as 2Ti: allocatable memory less the requests of other pods."),
    ] = None,
    compare: Annotated[
        str | None,
        _output(metavar="LIST", help="Context lengths (64K,142000,1M) or GPUs (H200,B200): a row each."),
    ] = None,
    plot: Annotated[
        Path | None,
        _output(metavar="FILE", help="Draw concurrency against context length: .png, .svg or .pdf."),
    ] = None,
    as_published: Annotated[
        bool,
        _output("--as-published", help="The figures of vLLM's published calculator for GLM-5.3 instead."),
    ] = False,
    explain: Annotated[bool, _output("--explain", help="Every step of the arithmetic.")] = False,
    output: Annotated[OutputFormat, _output("-o", "--output", help="For people or for programs.")] = OutputFormat.TABLE,
) -> None:
    """Plan an engine's memory: what vLLM will allocate, what a pod needs, how many requests run at once.

    Exit code 2 where vLLM would not start, with the reason and what would be enough.

    \b
    hisparse plan --model zai-org/GLM-5.3 --gpu H200 --kv-cache-dtype fp8 --max-model-len 142000
    hisparse plan --model zai-org/GLM-5.3 --kv-cache-dtype fp8 --compare 64K,142000,1M
    hisparse plan -f deployment.yaml --node-memory 1.5Ti --explain
    """
    given = _given(ctx)
    if plot is not None and plot.suffix not in FIGURE_SUFFIXES:
        raise typer.BadParameter(f"{plot}: the name has to end in {', '.join(FIGURE_SUFFIXES)}", param_hint="--plot")
    display = Display(output=output, is_explained=explain, plot=plot)
    entries = _parsed("--compare", compared, compare)
    if entries is not None:
        replaced = "gpu" if isinstance(entries[0], str) else "max_model_len"
        _refuse(ctx, given & {replaced}, because="--compare has a list of them")
    node_memory_bytes = _parsed("--node-memory", quantity_bytes, node_memory)
    if filename is not None:
        _refuse(ctx, given - _WITH_FILE, because="a HiSparseDeployment file holds what is planned; change it there")
        raise typer.Exit(_plan_file(filename, entries, display, node_memory_bytes=node_memory_bytes))
    context_tokens = _parsed("--max-model-len", context, max_model_len)
    gpu_kv = _parsed("--gpu-kv-gib", gib, gpu_kv_gib)
    pool = _parsed("--host-pool-gib", gib, host_pool_gib)
    offload_bytes = _parsed("--cpu-bytes-to-use", quantity_bytes, cpu_bytes_to_use)
    if as_published:
        _refuse(ctx, given - _AS_PUBLISHED, because="the published calculator has no place for it")
        if isinstance(context_tokens, str):
            raise typer.BadParameter("the published calculator fits no context: give a number", param_hint="--max-model-len")
        raise typer.Exit(
            _plan_as_published(
                entries,
                output,
                model=model,
                kv_cache_dtype=kv_cache_dtype if "kv_cache_dtype" in given else None,
                host_pool_gib=pool,
                offload_bytes=offload_bytes,
                ram_bytes=node_memory_bytes,
                gpu=gpu,
                tensor_parallel_size=tensor_parallel_size,
                data_parallel_size=data_parallel_size,
                expert_parallel=expert_parallel,
                sequence_tokens=context_tokens,
                hot_rows=device_buffer_size,
                max_num_seqs=max_num_seqs if "max_num_seqs" in given else None,
                kv_gib=gpu_kv,
            )
        )
    if model is None and model_config is None:
        raise typer.BadParameter("give a model (--model or --model-config) or a file (-f); `hisparse plan --help` has them all")
    try:
        files = read_model_files(name=model, path=model_config)
    except ModelFileError as error:
        raise typer.BadParameter(str(error), param_hint="--model-config") from error
    flags = PlanFlags(
        files=files,
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        gpu_kv_bytes=None if gpu_kv is None else gib_bytes(gpu_kv),
        gpu_memory_utilization=gpu_memory_utilization,
        kv_cache_dtype=kv_cache_dtype,
        tensor_parallel_size=tensor_parallel_size,
        data_parallel_size=data_parallel_size,
        expert_parallel=expert_parallel,
        max_model_len=context_tokens,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        num_speculative_tokens=num_speculative_tokens,
        device_buffer_size=device_buffer_size,
        async_scheduling=async_scheduling,
        host_pool_bytes=None if pool is None else gib_bytes(pool),
        cpu_bytes_to_use=offload_bytes,
        node_memory_bytes=node_memory_bytes,
        vllm_version=vllm_version,
    )
    raise typer.Exit(_show(partial(_flag_case, flags), entries, display))


def _flag_case(flags: PlanFlags, *, gpu_name: str | None = None, max_model_len: int | None = None) -> Case:
    return case_from_flags(replace(flags, gpu=gpu_name or flags.gpu, max_model_len=max_model_len or flags.max_model_len))


def _plan_file(path: Path, entries: Entries, display: Display, *, node_memory_bytes: int | None) -> int:
    from hisparse_runtime.cli.plan import file as deployment_file  # noqa: PLC0415 (the operator's models: a file's to pay)

    try:
        deployment = deployment_file.read_deployment(path)
    except deployment_file.DeploymentFileError as error:
        raise typer.BadParameter(str(error), param_hint="-f") from error
    if not deployment.is_embedded:
        return _show(partial(deployment_file.deployment_case, deployment, node_memory_bytes=node_memory_bytes), entries, display)
    if entries is not None or display.plot is not None:
        raise typer.BadParameter("--compare and --plot are for engine type VLLM: concurrency of type Embedded is not planned")
    try:
        answer = deployment_file.embedded_answer(deployment, node_memory_bytes=node_memory_bytes)
    except RefusedError as error:
        answer = refused_early(error)
    return show_answer(answer, display)


def _plan_as_published(entries: Entries, output: OutputFormat, **given: Any) -> int:
    from hisparse_runtime.cli.plan.published import published_inputs, show_published  # noqa: PLC0415 (this mode's to pay)

    try:
        show_published(published_inputs(**given), entries, output=output)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--as-published") from error
    return 0


def _show(make_case: CaseMaker, entries: Entries, display: Display) -> int:
    try:
        return show_one(make_case, display) if entries is None else show_comparison(make_case, entries, display)
    except FigureError as error:
        raise typer.BadParameter(str(error), param_hint="--plot") from error


def _given(ctx: typer.Context) -> frozenset[str]:
    """Parameters that were typed."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")


def _refuse(ctx: typer.Context, unwanted: frozenset[str], *, because: str) -> None:
    if unwanted:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(unwanted))
        ctx.fail(f"leave out {options}: {because}")


def _parsed(option: str, parse: Callable[[str], Value], text: str | None) -> Value | None:
    """None for an option that is not given."""
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
