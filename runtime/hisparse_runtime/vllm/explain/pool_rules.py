"""The host pool as it is given: vLLM reads it when it plans the KV caches, so a mistake costs the loading of the weights."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hisparse_runtime.capacity import GIB
from hisparse_runtime.vllm.command_line.connectors import HISPARSE, MULTI, OFFLOADING, Connector
from hisparse_runtime.vllm.command_line.edits import Edit, Json, in_order, with_json, without_option
from hisparse_runtime.vllm.command_line.meaning import ATTENTION, KV_TRANSFER, OFFLOADING_SIZE, Meaning
from hisparse_runtime.vllm.command_line.quantities import quantity_bytes
from hisparse_runtime.vllm.command_line.transfer_config import (
    changed_members,
    joined,
    members_of,
    offloading_connector,
    with_hisparse,
    with_members,
)
from hisparse_runtime.vllm.explain.findings import Rejection, Stage
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from hisparse_runtime.vllm.explain.old_dialect import OLD_POOL_KEYS
from hisparse_runtime.vllm.explain.sizes import suggested_pool_gib

# With --max-model-len auto, vLLM looks for a length that it can plan, takes every error for a length that it cannot, and blames
# the GPU's memory in the end.
UNFITTED = "Cannot auto-fit max_model_len"
_SEARCHED = frozenset(
    {"NoHisparseConnector", "NoPool", "OffloadingSizeReplaces", "PoolNotANumber", "PoolNotPositive", "TwoHisparseConnectors"}
)


def pool_gib(connector: Connector) -> float | None:
    """As vLLM will read it; None where it cannot."""
    return _as_gib(connector.extra.get("host_pool_gib"))


def coming_pool_gib(meaning: Meaning, knowledge: Knowledge) -> float | None:
    """The host pool of a line that is put right: given in whatever dialect, or suggested. None where there will be none."""
    if not meaning.has_hisparse:
        return None
    given = [connector.extra.get("host_pool_gib") for connector in meaning.hisparse_connectors]
    given += [(meaning.hisparse_config or {}).get(OLD_POOL_KEYS[1])]
    return next((gib for gib in map(_as_gib, given) if gib is not None), None) or suggested_pool_gib(meaning, knowledge)


def _as_gib(given: Any) -> float | None:
    if given is None or isinstance(given, list | dict):
        return None
    try:
        size_gib = float(given)
    except (OverflowError, ValueError):
        return None
    return size_gib if math.isfinite(size_gib * GIB) and size_gib > 0 else None


def pool_rejections(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    for rejection in _pool_rejections(meaning, knowledge):
        if meaning.is_context_fitted and rejection.code in _SEARCHED:
            message = f"{rejection.message}; with --max-model-len auto, vLLM blames the GPU's memory for it"
            yield replace(rejection, message=message, says=UNFITTED)
        else:
            yield rejection


def _pool_rejections(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    if meaning.has_hisparse and meaning.is_offloading_size_given:
        yield _replaced_connector(meaning)
        return
    connectors, typed = meaning.hisparse_connectors, meaning.typed(KV_TRANSFER)
    if len(connectors) > 1:
        yield _rejection(
            "TwoHisparseConnectors",
            typed,
            f"{typed} has {len(connectors)} HiSparseConnectors: an engine has one host pool",
            says="Only one HiSparseConnector may be configured",
            edit=with_json(KV_TRANSFER, _first_only, what="kept the first HiSparseConnector"),
        )
    elif connectors:
        yield from _pool(connectors[0], meaning, knowledge)
    elif meaning.hisparse_config is not None and OLD_POOL_KEYS[1] not in meaning.hisparse_config:
        gib = suggested_pool_gib(meaning, knowledge)
        yield _rejection(
            "NoHisparseConnector",
            meaning.typed(ATTENTION),
            f"{meaning.typed(ATTENTION)} has hisparse_config, and {KV_TRANSFER} no HiSparseConnector, which has the size of the"
            f" host pool{_suggestion(gib)}",
            says="HiSparse requires HiSparseConnector with host_pool_gib",
            edit=_added(gib),
        )
    if meaning.has_hidden_hisparse and not meaning.has_hisparse and not meaning.is_offloading_size_given:
        yield _hidden(meaning)


def _hidden(meaning: Meaning) -> Rejection:
    """Found when HiSparse's connector has no host pool; an offloading connector beside it wants another cache layout before."""
    top, typed = meaning.connector, meaning.typed(KV_TRANSFER)
    has_offloading = top is not None and any(member.name == OFFLOADING for member in top.all)
    return Rejection(
        code="HiddenHisparse",
        stage=Stage.PLANNING if has_offloading else Stage.WORKERS,
        option=typed,
        message=f"{typed}: vLLM looks for a HiSparseConnector at the top or in the MultiConnector there, not deeper",
        says="KV cache layout mismatch" if has_offloading else "HiSparseConnector requires a HiSparse host pool",
        edit=with_json(KV_TRANSFER, _flattened, what="put all connectors into one MultiConnector"),
    )


def _pool(connector: Connector, meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    given, typed = connector.extra.get("host_pool_gib"), meaning.typed(KV_TRANSFER)
    if pool_gib(connector) is not None:
        return
    if given is None:
        gib = suggested_pool_gib(meaning, knowledge)
        message = f"{typed}: the HiSparseConnector has no host_pool_gib{_suggestion(gib)}"
        yield _rejection("NoPool", typed, message, says="HiSparseConnector requires host_pool_gib", edit=_added(gib))
        return
    try:
        size_gib = float(given)
    except TypeError:
        says, what = "float() argument must be", "no number"
    except OverflowError:
        # already when the config is checked, where the other values pass
        yield Rejection(
            code="PoolBeyondNumbers",
            stage=Stage.CONFIG,
            option=typed,
            message=f"{typed}: host_pool_gib has more digits than any size: GiB are meant",
            says="int too large to convert to float",
        )
        return
    except ValueError:
        says, what = "could not convert string to float", "no number: GiB are written without a unit"
    else:
        gib = suggested_pool_gib(meaning, knowledge)
        if not math.isfinite(size_gib * GIB):
            message = f"{typed}: host_pool_gib {given!r} is no size{_suggestion(gib)}"
            yield _rejection("PoolNotANumber", typed, message, says="cannot convert float", edit=_resized(gib))
        else:
            message = f"{typed}: host_pool_gib {given!r} is not above zero{_suggestion(gib)}"
            yield _rejection("PoolNotPositive", typed, message, says="host_pool_gib must be positive", edit=_resized(gib))
        return
    gib = _quantity_gib(given)
    message = f"{typed}: host_pool_gib {given!r} is {what}"
    yield _rejection("PoolNotANumber", typed, message, says=says, edit=_resized(gib))


def _replaced_connector(meaning: Meaning) -> Rejection:
    typed, size_gib = meaning.typed(OFFLOADING_SIZE), meaning.value(OFFLOADING_SIZE)
    size_bytes = int(float(size_gib) * GIB)

    def with_offloading(config: Json) -> Json:
        return joined([*members_of(config), offloading_connector(size_bytes, spec_name=None)]) or {}

    return _rejection(
        "OffloadingSizeReplaces",
        typed,
        f"{typed} puts an OffloadingConnector in the place of every connector in {KV_TRANSFER}, also of HiSparse: make it a"
        " child of the MultiConnector",
        says="HiSparse requires HiSparseConnector with host_pool_gib",
        edit=in_order(
            [without_option(OFFLOADING_SIZE), with_json(KV_TRANSFER, with_offloading, what="")],
            what=f"made an OffloadingConnector of {typed} {size_gib:g}",
        ),
    )


def _quantity_gib(given: object) -> float | None:
    size_bytes = quantity_bytes(given)
    return None if size_bytes is None else round(size_bytes / GIB, 4)


def _suggestion(gib: float | None) -> str:
    if gib is None:
        return ": give it the GiB that one data-parallel replica may have"
    return f": running requests can fill {gib:g} GiB"


def _added(gib: float | None) -> Edit | None:
    if gib is None:
        return None
    return with_json(KV_TRANSFER, lambda config: with_hisparse(config, gib), what=f"gave HiSparse a host pool of {gib:g} GiB")


def _resized(gib: float | None) -> Edit | None:
    return None if gib is None else resized_pool(gib)


def resized_pool(gib: float) -> Edit:
    """The host pool of the HiSparseConnector that vLLM finds."""

    def change(config: Json) -> Json:
        return changed_members(config, HISPARSE, lambda extra: extra | {"host_pool_gib": gib})

    return with_json(KV_TRANSFER, change, what=f"set host_pool_gib {gib:g}")


def _first_only(config: Json) -> Json:
    members = members_of(config)
    first = next(member for member in members if member.get("kv_connector") == HISPARSE)
    return with_members(config, [member for member in members if member is first or member.get("kv_connector") != HISPARSE])


def _flattened(config: Json) -> Json:
    def leaves(member: Json) -> list[Json]:
        if member.get("kv_connector") != MULTI:
            return [member]
        return [leaf for child in members_of(member) for leaf in leaves(child)]

    return joined(leaves(config)) or {}


def _rejection(code: str, option: str, message: str, *, says: str, edit: Edit | None) -> Rejection:
    return Rejection(code=code, stage=Stage.PLANNING, option=option, message=message, says=says, edit=edit)
