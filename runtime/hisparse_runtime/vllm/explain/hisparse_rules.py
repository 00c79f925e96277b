"""What HiSparse does not go together with: all of it found by vLLM's configuration, but for the fields of its own config."""

from collections.abc import Iterator

from hisparse_runtime.vllm.command_line.edits import (
    Edit,
    Json,
    in_order,
    with_json,
    with_option,
    without_option,
    without_variable,
)
from hisparse_runtime.vllm.command_line.meaning import ATTENTION, COMPILATION, KV_TRANSFER, SPECULATION, Meaning, whole_number
from hisparse_runtime.vllm.command_line.transfer_config import without_hisparse
from hisparse_runtime.vllm.explain.findings import Rejection, Stage
from hisparse_runtime.vllm.explain.knowledge import Knowledge

GRAPH_MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
# 0.30 and 0.31 take FULL, and write garbage; 0.30 takes --no-scheduler-reserve-full-isl as well.
_ALLOWS_FULL_GRAPHS = frozenset({"0.30", "0.31"})
_ALLOWS_PARTIAL_ADMISSION = frozenset({"0.30"})
_BOOLEANS = frozenset({"0", "1", "f", "false", "n", "no", "off", "on", "t", "true", "y", "yes"})
_PP, _TP, _DCP = "--pipeline-parallel-size", "--tensor-parallel-size", "--decode-context-parallel-size"
_RESERVE, _HYBRID, _DBO = "--scheduler-reserve-full-isl", "--disable-hybrid-kv-cache-manager", "--enable-dbo"
_PCP, _DP = "--prefill-context-parallel-size", "--data-parallel-size"
_V2_RUNNER, _LAYOUT = "VLLM_USE_V2_MODEL_RUNNER", "VLLM_KV_CACHE_LAYOUT"
_BLOCK_OUTERMOST = ("BLHNC", "BLNHC", "BHLNC")
_LAYOUTS = (*_BLOCK_OUTERMOST, "LBNHC", "LBHNC", "LHBNC", "NHD", "HND")
_OLD_RUNNERS_ONLY = ("ngram", "ngram_gpu", "medusa", "mlp_speculator")  # a tuple: what JSON brings may not hash
_WITHOUT_V2_RUNNER = {"0.30": _OLD_RUNNERS_ONLY, "0.31": _OLD_RUNNERS_ONLY}
_NO_CONTEXT_PARALLEL_REPLICAS = frozenset({"0.30"})


def field_rejections(meaning: Meaning) -> Iterator[Rejection]:
    """Values in JSON options that the parser refuses."""
    hisparse = meaning.hisparse_config or {}
    typed = meaning.typed(ATTENTION)
    problem = _size_problem(hisparse.get("device_buffer_size"))
    if problem:
        yield Rejection(
            code="InvalidDeviceBuffer",
            stage=Stage.ARGPARSE,
            option=typed,
            message=f"{typed}: hisparse_config.device_buffer_size {hisparse['device_buffer_size']!r} is no whole number above"
            " zero: leave it out for vLLM's default",
            says=problem,
            edit=_without_field("device_buffer_size"),
        )
    mirror = hisparse.get("eager_host_mirror", True)
    if not (isinstance(mirror, bool) or mirror in (0, 1) or (isinstance(mirror, str) and mirror.lower() in _BOOLEANS)):
        yield Rejection(
            code="InvalidMirror",
            stage=Stage.ARGPARSE,
            option=typed,
            message=f"{typed}: hisparse_config.eager_host_mirror {mirror!r} is neither true nor false",
            says="Input should be a valid boolean",
            edit=_without_field("eager_host_mirror"),
        )
    mode = meaning.config(COMPILATION).get("cudagraph_mode")
    is_unknown = mode.upper() not in GRAPH_MODES if isinstance(mode, str) else isinstance(mode, int) and not 0 <= mode <= 2
    if is_unknown:
        yield Rejection(
            code="UnknownGraphMode",
            stage=Stage.ARGPARSE,
            option=meaning.typed(COMPILATION),
            message=f"{meaning.typed(COMPILATION)}: cudagraph_mode {mode!r} is none of {', '.join(GRAPH_MODES)}",
            says=f"KeyError: {mode.upper()!r}" if isinstance(mode, str) else "Input should be 0, 1, 2",
            edit=without_graph_mode(),
        )


def feature_rejections(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    """For a line that has HiSparse."""
    version = knowledge.version.name
    runner = meaning.line.variable(_V2_RUNNER)
    if runner is not None and runner.strip() != "1":
        is_off = runner.strip() == "0"
        why = "HiSparse needs model runner V2, and switches it on by itself" if is_off else "vLLM reads a number, 0 or 1"
        yield _rejection(
            "ModelRunnerV1",
            _V2_RUNNER,
            f"{_V2_RUNNER}={runner}: {why}",
            says="HiSparse requires Model Runner V2" if is_off else "invalid literal for int()",
            edit=without_variable(_V2_RUNNER),
        )
    yield from _environment(meaning)
    method = meaning.speculation.get("method")
    if method in _WITHOUT_V2_RUNNER.get(version, ()):
        typed = meaning.typed(SPECULATION)
        message = f"{typed}: model runner V2, which HiSparse needs, has no method {method} in {version}: mtp is the one for it"
        yield _rejection(
            "SpeculationWithoutRunner",
            typed,
            message,
            says=f"does not yet support: speculative method '{method}'",
            edit=None,
        )
    if meaning.value(_DBO) is True:
        message = f"{_DBO}: model runner V2, which HiSparse needs, has no dual batch overlap"
        yield _rejection("DualBatchOverlap", _DBO, message, says="does not yet support", edit=without_option(_DBO))
    if knowledge.gpu is not None and not knowledge.gpu.supported:
        message = f"{knowledge.gpu.name}: {knowledge.gpu.note}"
        yield _rejection("NotCuda", "", message, says="HiSparse currently requires NVIDIA CUDA", edit=None)
    yield from _parallelism(meaning, version)
    if meaning.cudagraph_mode == "FULL" and version not in _ALLOWS_FULL_GRAPHS:
        typed = meaning.typed(COMPILATION)
        message = f"{typed}: cudagraph_mode FULL; leave it at FULL_AND_PIECEWISE, which has full graphs for decode batches"
        yield _rejection("FullGraphs", typed, message, says="does not support cudagraph_mode=FULL", edit=without_graph_mode())
    if meaning.value(_RESERVE) is False and version not in _ALLOWS_PARTIAL_ADMISSION:
        typed = meaning.typed(_RESERVE)
        message = f"{typed}: requests that are admitted with a part of their pages can wait for each other's host blocks for ever"
        yield _rejection(
            "PartialAdmission",
            typed,
            message,
            says="HiSparse requires --scheduler-reserve-full-isl",
            edit=without_option(_RESERVE),
        )
    if knowledge.is_known_to_lack_topk:
        message = (
            "config.json has no 'index_topk' at its top level: HiSparse is for models whose lightning indexer picks the top-K"
            " tokens (GLM-5.x, DeepSeek-V3.2)"
        )
        yield _rejection("NotSparse", "", message, says="only supported for DSA models", edit=without_hisparse_options())
    if meaning.value(_HYBRID) is True:
        typed = meaning.typed(_HYBRID)
        yield _rejection(
            "HybridCacheOff",
            typed,
            f"{typed}: HiSparse is made of dozens of cache groups, which only the hybrid manager can have",
            says="HiSparse requires the hybrid KV cache manager",
            edit=without_option(_HYBRID),
        )


def _environment(meaning: Meaning) -> Iterator[Rejection]:
    layout = meaning.line.variable(_LAYOUT)
    if layout is None or layout in _BLOCK_OUTERMOST:
        return
    yield Rejection(
        code="CacheLayout",
        stage=Stage.PLANNING,
        option=_LAYOUT,
        message=f"{_LAYOUT}={layout}: HiSparse needs a layout with the block outermost, which vLLM takes by itself",
        says="cannot express this model's mixed page sizes" if layout in _LAYOUTS else "Invalid value",
        edit=without_variable(_LAYOUT),
    )


def _parallelism(meaning: Meaning, version: str) -> Iterator[Rejection]:
    ranks, replicas = meaning.number(_PCP, default=1), meaning.number(_DP, default=1)
    if ranks > 1 and replicas > 1 and version in _NO_CONTEXT_PARALLEL_REPLICAS:
        typed = meaning.typed(_PCP)
        message = f"{typed} {ranks} with {replicas} data-parallel replicas: {version} has one or the other"
        yield _rejection("ContextParallelReplicas", typed, message, says="PCP does not support", edit=without_option(_PCP))
    pipeline = meaning.number(_PP, default=1)
    if pipeline > 1:
        ranks = pipeline * meaning.number(_TP, default=1)
        fold = in_order(
            [without_option(_PP), with_option(_TP, str(ranks))],
            what=f"made {_TP} {ranks} of the pipeline's and the tensor's ranks",
        )
        typed = meaning.typed(_PP)
        message = f"{typed} {pipeline}: with HiSparse a replica is one tensor-parallel group"
        yield _rejection("PipelineParallel", typed, message, says="does not support pipeline parallelism", edit=fold)
    context = meaning.number(_DCP, default=1)
    if context > 1:
        typed = meaning.typed(_DCP)
        is_even = meaning.number(_TP, default=1) % context == 0
        yield _rejection(
            "DecodeContextParallel",
            typed,
            f"{typed} {context}: with HiSparse every rank has the whole context",
            says="does not support decode context parallelism" if is_even else f"must be divisible by dcp_size={context}",
            edit=without_option(_DCP),
        )


def _size_problem(size: object) -> str:
    """In pydantic's words; empty where there is none."""
    if size is None:
        return ""
    rows = whole_number(size)
    if rows is None:
        return "Input should be a valid integer"
    return "" if rows > 0 else "Input should be greater than 0"


def _without_field(field: str) -> Edit:
    def change(config: Json) -> Json:
        del config["hisparse_config"][field]
        return config

    return with_json(ATTENTION, change, what=f"removed {field}")


def without_graph_mode() -> Edit:
    """vLLM's own, which has full graphs for decode batches."""

    def change(config: Json) -> Json:
        del config["cudagraph_mode"]
        return config

    return with_json(COMPILATION, change, what="removed cudagraph_mode")


def without_hisparse_options() -> Edit:
    """What is left is an ordinary engine."""

    def of_attention(config: Json) -> Json:
        config.pop("hisparse_config", None)
        return config

    return in_order(
        [with_json(ATTENTION, of_attention, what=""), with_json(KV_TRANSFER, without_hisparse, what="")], what="removed HiSparse"
    )


def _rejection(code: str, option: str, message: str, *, says: str, edit: Edit | None) -> Rejection:
    return Rejection(code=code, stage=Stage.CONFIG, option=option, message=message, says=says, edit=edit)
