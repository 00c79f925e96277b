"""What vLLM takes without a word, or with a misleading one, and its user should know."""

from collections.abc import Iterator

from hisparse_runtime.capacity import CapacityError, human_bytes
from hisparse_runtime.geometry import (
    VLLM_PAGE_TOKENS,
    CacheFormatError,
    ModelConfigError,
    lay_out,
    vllm_cache_format,
)
from hisparse_runtime.vllm.command_line.connectors import HISPARSE, NIXL, OFFLOADING, QUIET, Connector
from hisparse_runtime.vllm.command_line.meaning import ATTENTION, KV_TRANSFER, OFFLOADING_SIZE, Meaning
from hisparse_runtime.vllm.explain.findings import Caution
from hisparse_runtime.vllm.explain.hisparse_rules import without_graph_mode
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from hisparse_runtime.vllm.explain.pool_rules import pool_gib
from hisparse_runtime.vllm.explain.sizes import sizes_depend_on
from hisparse_runtime.vllm.known_bugs import FULL_GRAPHS_BUG, Features, bugs_met

_SECRETS = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}
_NIXL_NAMES = (NIXL, "NixlPullConnector")
# Shared stores keep indexer keys as well.
_KEEPS_INDEXER_KEYS = (OFFLOADING, "MooncakeStoreConnector", "SimpleCPUOffloadConnector")


def cautions(meaning: Meaning, knowledge: Knowledge) -> Iterator[Caution]:
    """Nothing without HiSparse."""
    connector = meaning.connector
    if not meaning.has_hisparse:
        return
    unjudged = sizes_depend_on(meaning)
    if unjudged is not None:
        message = f"{unjudged}: with it, the sizes are not those of the memory plan, and not judged here"
        yield Caution(code="SizesNotJudged", message=message)
    if connector is not None:
        yield from _connectors(connector)
    size = meaning.device_buffer_size
    if size is not None and size > 0 and size % VLLM_PAGE_TOKENS:
        rounded = -(-size // VLLM_PAGE_TOKENS) * VLLM_PAGE_TOKENS
        yield Caution(
            code="PaddingRows",
            message=f"device_buffer_size {size:,} leaves {rounded - size} rows of each hot group unused: use {rounded:,}",
        )
    yield from _copies(meaning)
    for bug in bugs_met(knowledge.version, features(meaning, knowledge)):
        message = f"vLLM {knowledge.version.name}: {bug.text} ({bug.name}, {bug.advice})"
        yield Caution(code="KnownBug", message=message, edit=without_graph_mode() if bug.name == FULL_GRAPHS_BUG else None)


def features(meaning: Meaning, knowledge: Knowledge) -> Features:
    members = meaning.connector.members if meaning.connector is not None else ()
    return Features(
        has_full_graphs=meaning.cudagraph_mode == "FULL",
        has_speculation=bool(meaning.speculation),
        has_nixl=any(member.name in _NIXL_NAMES for member in members),
        has_cache_metrics=meaning.value("--kv-cache-metrics") is True,
        is_tensor_parallel=meaning.number("--tensor-parallel-size", default=1) > 1,
        num_resident_groups=_resident_groups(meaning, knowledge),
    )


def _resident_groups(meaning: Meaning, knowledge: Knowledge) -> int | None:
    model, device = knowledge.model, knowledge.gpu
    if model is None or device is None:
        return None
    try:
        cache_format = vllm_cache_format(
            model,
            kv_cache_dtype=str(meaning.value("--kv-cache-dtype") or "auto"),
            capability=device.capability,
            version=knowledge.version,
        )
        return lay_out(model, cache_format, with_mtp=meaning.num_mtp_tokens > 0).num_groups
    except (CacheFormatError, CapacityError, ModelConfigError):
        return None


def spelling_cautions(meaning: Meaning) -> Iterator[Caution]:
    """What was typed and does not count."""
    if meaning.is_offloading_size_given and meaning.connector is not None and not meaning.has_hisparse:
        message = f"{OFFLOADING_SIZE} puts an {OFFLOADING} in the place of every connector in {KV_TRANSFER}"
        yield Caution(code="OffloadingSizeReplaces", message=message)
    for name, variable in _SECRETS.items():
        if meaning.line.given(name):
            message = f"{name}: whoever may list processes reads it there; {variable} in the environment does the same"
            yield Caution(code="SecretInCommand", message=message)
    if meaning.line.given("--config"):
        yield Caution(code="ConfigFile", message="--config: options in the file are not looked at here")
    for given in meaning.values.values():
        if not given.overridden:
            continue
        last = given.items[-1]
        gone = " ".join(word for item in given.overridden for word in item.words)
        how = "replace the JSON of the same option, they are not added to it" if last.keys else "count once, the last one"
        what = "dotted options" if last.keys else "repeated options"
        yield Caution(code="Overridden", message=f"{last.name}: {what} {how}: `{gone}` has no effect")


def _connectors(top: Connector) -> Iterator[Caution]:
    members = top.members
    names = [member.name for member in members]
    if top.name not in QUIET and top.name is not None:
        yield Caution(
            code="HarmlessWarning",
            message=f'vLLM will log "HiSparse host-resident KV is configured with connector {top.name}" and call it a fallback'
            " path: harmless",
        )
    if HISPARSE in names and not any(name in _KEEPS_INDEXER_KEYS for name in names):
        yield Caution(
            code="NoOffload",
            message=f"no {OFFLOADING} beside HiSparse: when an indexer page leaves the GPU, the prefix is computed again, though"
            " its KV is still in the host pool; conversations of several turns need a tier for indexer keys",
        )
    if HISPARSE in names and names[0] != HISPARSE:
        yield Caution(
            code="HisparseNotFirst",
            message=f"the first connector that has a prefix loads it, and {names[0]} is in front: put {HISPARSE} first",
        )
    for member in members:
        ignored = [key for key in member.extra if key != "host_pool_gib"] if member.name == HISPARSE else []
        if ignored:
            yield Caution(
                code="IgnoredKeys",
                message=f"{HISPARSE} reads host_pool_gib only, {', '.join(ignored)} of its kv_connector_extra_config"
                f" {'has' if len(ignored) == 1 else 'have'} no effect; device_buffer_size belongs into hisparse_config of"
                f" {ATTENTION}",
            )
        if member.name in _NIXL_NAMES and member.role == "kv_producer" and HISPARSE in names:
            yield Caution(
                code="HisparseProducer",
                message=f"{KV_TRANSFER}: an engine with HiSparse cannot send KV, receivers fail with: NIXL pull does not yet"
                " support a mixed-memory producer; run prefill servers without HiSparse",
            )


def _copies(meaning: Meaning) -> Iterator[Caution]:
    """host_pool_gib is neither the node's nor always once in a replica."""
    connectors = meaning.hisparse_connectors
    pool = pool_gib(connectors[0]) if len(connectors) == 1 else None
    if pool is None:
        return
    replicas = max(1, meaning.number("--data-parallel-size", default=1))
    ranks = max(1, meaning.number("--tensor-parallel-size", default=1))
    context_ranks = max(1, meaning.number("--prefill-context-parallel-size", default=1))
    backend = meaning.value("--distributed-executor-backend")
    is_private = ranks * context_ranks > 1 and (context_ranks > 1 or backend not in (None, "mp"))
    copies = replicas * (ranks * context_ranks if is_private else 1)
    if copies > 1:
        why = f"{replicas} data-parallel replicas" if replicas > 1 else ""
        each = f"{ranks * context_ranks} ranks that cannot share it" if is_private else ""
        yield Caution(
            code="PoolCopies",
            message=f"host_pool_gib {pool:g} is pinned {copies} times ({' x '.join(part for part in (why, each) if part)}):"
            f" {human_bytes(int(pool * copies) << 30)} of host memory",
        )
