"""An OffloadingConnector's own settings: vLLM reads them last, when its connectors start."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from hisparse_runtime.capacity import human_bytes
from hisparse_runtime.geometry import VLLM_PAGE_TOKENS
from hisparse_runtime.vllm.command_line.connectors import OFFLOADING, OFFLOADING_SPECS, TIERING_SPEC, Connector
from hisparse_runtime.vllm.command_line.edits import Edit, Json, with_json
from hisparse_runtime.vllm.command_line.meaning import KV_TRANSFER, Meaning
from hisparse_runtime.vllm.command_line.quantities import quantity_bytes
from hisparse_runtime.vllm.command_line.transfer_config import changed_members
from hisparse_runtime.vllm.explain.findings import Rejection, Stage
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from hisparse_runtime.vllm.explain.pool_rules import coming_pool_gib
from hisparse_runtime.vllm.explain.sizes import suggested_offload_bytes

_POLICIES = ("lru", "arc")
_DEFAULT_SPEC = OFFLOADING_SPECS[0]


def offload_rejections(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    top = meaning.connector
    if top is None or meaning.is_offloading_size_given:
        return
    for member in top.named(OFFLOADING):
        yield from _offload(member.extra, meaning, knowledge)


def offloaded_bytes(member: Connector) -> int | None:
    """cpu_bytes_to_use as vLLM will read it; None where it cannot."""
    given = member.extra.get("cpu_bytes_to_use")
    try:
        size_bytes = int(given) if given is not None else 0
    except (OverflowError, TypeError, ValueError):
        return None
    return size_bytes if size_bytes > 0 else None


def _offload(extra: Mapping[str, Any], meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    typed = meaning.typed(KV_TRANSFER)
    spec = extra.get("spec_name", _DEFAULT_SPEC)
    yield from _spec(spec, extra, typed)
    if extra.get("blocks_per_chunk") is not None and extra.get("block_size") is not None:
        yield _rejection(
            "TwoChunkSizes",
            typed,
            "block_size and blocks_per_chunk say the same",
            says="Specify only one of 'block_size' or 'blocks_per_chunk'",
            edit=_without("block_size"),
        )
    elif isinstance(extra.get("blocks_per_chunk"), int) and extra["blocks_per_chunk"] <= 0:
        yield _rejection(
            "InvalidChunk",
            typed,
            f"blocks_per_chunk {extra['blocks_per_chunk']} is not above zero",
            says="'blocks_per_chunk' must be greater than 0",
            edit=_without("blocks_per_chunk"),
        )
    elif meaning.has_hisparse and isinstance(extra.get("block_size"), int) and extra["block_size"] % VLLM_PAGE_TOKENS:
        yield _rejection(
            "InvalidChunk",
            typed,
            f"block_size {extra['block_size']} is no multiple of the GPU's {VLLM_PAGE_TOKENS} tokens",
            says="must be a multiple of the GPU KV cache block size",
            edit=_without("block_size"),
        )
    yield from _size(extra.get("cpu_bytes_to_use"), meaning, knowledge)
    if spec == TIERING_SPEC and _whole(extra.get("store_threshold", 0)) >= 2:
        yield _rejection(
            "TieringThreshold",
            typed,
            f"{TIERING_SPEC} stores what it is given: store_threshold is {_DEFAULT_SPEC}'s",
            says="store_threshold is not supported for TieringOffloadingSpec",
            edit=_without("store_threshold"),
        )
    policy = extra.get("eviction_policy", "lru")
    if policy not in _POLICIES and extra.get("cache_policy_module_path") is None:
        yield _rejection(
            "UnknownCachePolicy",
            typed,
            f"eviction_policy {policy!r} is none of {', '.join(_POLICIES)}",
            says="Unknown cache policy",
            edit=_without("eviction_policy"),
        )


def _spec(spec: object, extra: Mapping[str, Any], typed: str) -> Iterator[Rejection]:
    if spec not in OFFLOADING_SPECS and extra.get("spec_module_path") is None:
        close = difflib.get_close_matches(str(spec), OFFLOADING_SPECS, n=1)
        yield _rejection(
            "UnknownOffloadingSpec",
            typed,
            f"spec_name {spec!r} is none of {', '.join(OFFLOADING_SPECS)}",
            says="Unsupported spec type",
            edit=_set("spec_name", close[0]) if close else _without("spec_name"),
        )
    if spec == TIERING_SPEC and not isinstance(extra.get("secondary_tiers", []), list):
        yield _rejection(
            "InvalidTiers",
            typed,
            "secondary_tiers is no list",
            says="secondary_tiers must be a list",
            edit=_without("secondary_tiers"),
        )


def _size(given: object, meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    typed = meaning.typed(KV_TRANSFER)
    if not given:
        pool_gib = coming_pool_gib(meaning, knowledge)
        size_bytes = None if pool_gib is None else suggested_offload_bytes(meaning, knowledge, pool_gib=pool_gib)
        yield _rejection(
            "NoOffloadSize",
            typed,
            f"has no cpu_bytes_to_use: {_suggestion(size_bytes)}",
            says="cpu_bytes_to_use must be specified",
            edit=None if size_bytes is None else _set("cpu_bytes_to_use", size_bytes),
        )
    elif isinstance(given, str) and not given.strip().lstrip("-").isdigit():
        size_bytes = quantity_bytes(given)
        yield _rejection(
            "OffloadSizeNotANumber",
            typed,
            f"cpu_bytes_to_use {given!r} is no number: bytes are written without a unit",
            says="invalid literal for int()",
            edit=None if size_bytes is None else _set("cpu_bytes_to_use", size_bytes),
        )
    elif _whole(given) < 0:
        yield _rejection("OffloadSizeNegative", typed, f"cpu_bytes_to_use {given!r} is below zero", says="", edit=None)


def _suggestion(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "give the bytes of host memory for it"
    return f"{human_bytes(size_bytes)} hold the indexer keys of as many tokens as the host pool"


def _whole(value: object) -> int:
    """0 for what is no number: vLLM complains of it, in words of Python's own."""
    try:
        return int(value) if isinstance(value, int | float | str) else 0
    except (OverflowError, ValueError):
        return 0


def _set(key: str, value: object) -> Edit:
    return _edit(lambda extra: extra | {key: value}, what=f"set {key} {value} of the {OFFLOADING}")


def _without(key: str) -> Edit:
    return _edit(
        lambda extra: {name: value for name, value in extra.items() if name != key}, what=f"removed {key} of the {OFFLOADING}"
    )


def _edit(change: Any, *, what: str) -> Edit:
    def apply(config: Json) -> Json:
        return changed_members(config, OFFLOADING, change)

    return with_json(KV_TRANSFER, apply, what=what)


def _rejection(code: str, typed: str, message: str, *, says: str, edit: Edit | None) -> Rejection:
    return Rejection(
        code=code, stage=Stage.WORKERS, option=typed, message=f"{typed}: {OFFLOADING}: {message}", says=says, edit=edit
    )
