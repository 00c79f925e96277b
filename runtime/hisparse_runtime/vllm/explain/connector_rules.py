"""Connectors that vLLM cannot make, or not together with HiSparse."""

import difflib
from collections.abc import Iterator
from typing import Any

from hisparse_runtime.vllm.command_line.connectors import (
    KNOWN,
    KV_BOTH,
    KV_ROLES,
    MULTI,
    NIXL,
    NIXL_PUSH,
    WITHOUT_HYBRID_CACHE,
    Connector,
)
from hisparse_runtime.vllm.command_line.edits import Edit, Json, with_json, without_option, without_variable
from hisparse_runtime.vllm.command_line.meaning import KV_TRANSFER, Meaning
from hisparse_runtime.vllm.command_line.options import option_table
from hisparse_runtime.vllm.command_line.transfer_config import joined, members_of, with_members
from hisparse_runtime.vllm.explain.findings import Rejection, Stage
from hisparse_runtime.vllm.explain.knowledge import Knowledge

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_EXPANDABLE = "expandable_segments:True"
_LOAD_POLICIES = ("recompute", "fail")
_SIMILARITY = 0.8
_PCP = "--prefill-context-parallel-size"


def connector_rejections(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    """What holds with and without HiSparse, in vLLM's order."""
    top = meaning.connector
    if top is None:
        if isinstance(meaning.value(KV_TRANSFER), dict):
            yield _nameless(Stage.CONFIG, edit=without_option(KV_TRANSFER))
        return
    typed = meaning.typed(KV_TRANSFER)
    if top.name is not None:
        yield from _role(top, typed, Stage.ARGPARSE)
    policy = top.written.get("kv_load_failure_policy", "fail")
    if policy not in _LOAD_POLICIES:
        yield Rejection(
            code="UnknownLoadPolicy",
            stage=Stage.ARGPARSE,
            option=typed,
            message=f"{typed}: kv_load_failure_policy {policy!r} is neither recompute nor fail",
            says="Input should be 'recompute' or 'fail'",
            edit=with_json(KV_TRANSFER, _without("kv_load_failure_policy"), what="removed kv_load_failure_policy"),
        )
    fields = option_table(knowledge.version).configs["KVTransferConfig"]
    for member in top.all:
        # with --kv-offloading-size, another connector is at the top before the name there is looked at
        if member is not top or not meaning.is_offloading_size_given:
            yield from _member(member, typed, fields, is_top=member is top)
    if not meaning.is_offloading_size_given:
        yield from _multi(top, meaning)
    yield from _environment(meaning)


def hisparse_connector_rejections(meaning: Meaning) -> Iterator[Rejection]:
    """What HiSparse does not go together with."""
    top, typed = meaning.connector, meaning.typed(KV_TRANSFER)
    if top is None:
        return
    if meaning.has_hisparse and not meaning.is_offloading_size_given:
        for member in top.all:
            if member.name in WITHOUT_HYBRID_CACHE:
                yield Rejection(
                    code="OneCacheGroupOnly",
                    stage=Stage.CONFIG,
                    option=typed,
                    message=f"{typed}: {member.name} knows one cache group only, HiSparse makes dozens: use it without",
                    says="HiSparse requires the hybrid KV cache manager",
                    edit=_without_member(member),
                )
    has_hisparse = meaning.has_hisparse or meaning.has_hidden_hisparse
    for member in top.members if has_hisparse else ():
        if member.name == NIXL_PUSH:
            yield Rejection(
                code="NixlPush",
                stage=Stage.WORKERS,
                option=typed,
                message=f"{typed}: {NIXL_PUSH} cannot transfer KV that lies on the GPU and on the host: use {NIXL}, which pulls",
                says="does not support mixed-memory KV caches",
                edit=_changed(member, lambda written: written | {"kv_connector": NIXL}, what=f"wrote {NIXL} for {NIXL_PUSH}"),
            )


def nixl_rejections(meaning: Meaning) -> Iterator[Rejection]:
    top, ranks = meaning.connector, meaning.number(_PCP, default=1)
    for member in top.members if top is not None else ():
        if member.name in (NIXL, "NixlPullConnector") and ranks > 1 and member.role != "kv_producer":
            yield Rejection(
                code="NixlContextParallel",
                stage=Stage.WORKERS,
                option=meaning.typed(_PCP),
                message=f"{meaning.typed(_PCP)} {ranks}: {member.name} can only send from it: leave it out",
                says="PCP currently supports kv_producer only",
                edit=without_option(_PCP),
            )


def _member(member: Connector, typed: str, fields: Any, *, is_top: bool) -> Iterator[Rejection]:
    """The top is checked by the parser, children when they are looked at."""
    if not is_top:
        unknown = [key for key in member.written if key not in fields]
        if unknown:
            yield Rejection(
                code="UnknownKey",
                stage=Stage.CONFIG,
                option=typed,
                message=f"{typed}: {member.name or 'a child'} has no field {', '.join(map(repr, unknown))}: its own settings"
                " belong into kv_connector_extra_config",
                says="Unexpected keyword argument",
                edit=_changed(member, _without(*unknown), what=f"removed {', '.join(unknown)}"),
            )
        if member.name is not None:
            yield from _role(member, typed, Stage.CONFIG)
    if member.name is None:
        yield _nameless(Stage.CONFIG, edit=_without_member(member))
    elif member.name not in KNOWN and not member.written.get("kv_connector_module_path"):
        close = difflib.get_close_matches(member.name, KNOWN, n=1, cutoff=_SIMILARITY)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(KNOWN)}"
        yield Rejection(
            code="UnknownConnector",
            stage=Stage.CONFIG,
            option=typed,
            message=f"{typed}: there is no connector {member.name}; {hint}",
            says=f"Unsupported connector type: {member.name}",
            edit=_renamed(member, close[0]) if close else None,
        )


def _renamed(member: Connector, name: str) -> Edit:
    return _changed(member, lambda written: written | {"kv_connector": name}, what=f"wrote {name} for {member.name}")


def _role(member: Connector, typed: str, stage: Stage) -> Iterator[Rejection]:
    role = member.written.get("kv_role")
    if role in KV_ROLES:
        return
    yield Rejection(
        code="MissingRole" if role is None else "UnknownRole",
        stage=stage,
        option=typed,
        message=f"{typed}: {member.name} has no kv_role; every connector needs one, also a child of a MultiConnector"
        if role is None
        else f"{typed}: kv_role {role!r} of {member.name} is none of {', '.join(KV_ROLES)}",
        says="Please specify kv_role" if role is None else "Input should be 'kv_producer', 'kv_both' or 'kv_consumer'",
        edit=_changed(member, lambda written: written | {"kv_role": KV_BOTH}, what=f"gave {member.name} kv_role {KV_BOTH}"),
    )


def _multi(top: Connector, meaning: Meaning) -> Iterator[Rejection]:
    typed = meaning.typed(KV_TRANSFER)
    written = top.extra.get("connectors")
    if top.name != MULTI or top.children or written:
        return
    if meaning.has_hisparse:
        says = "HiSparse requires the hybrid KV cache manager"
    elif written is None:
        says = "KeyError: 'connectors'"
    else:
        return
    yield Rejection(
        code="EmptyMultiConnector",
        stage=Stage.CONFIG,
        option=typed,
        message=f"{typed}: MultiConnector has no connectors in its kv_connector_extra_config",
        says=says,
        edit=without_option(KV_TRANSFER),
    )


def _environment(meaning: Meaning) -> Iterator[Rejection]:
    allocator = meaning.line.variable(_ALLOCATOR)
    if allocator is not None and _EXPANDABLE in allocator and meaning.value("--enable-cumem-allocator") is not True:
        yield Rejection(
            code="ExpandableSegments",
            stage=Stage.CONFIG,
            option=_ALLOCATOR,
            message=f"{_ALLOCATOR}={allocator}: such memory moves under a connector that has pinned it",
            says="is incompatible with PYTORCH_CUDA_ALLOC_CONF",
            edit=without_variable(_ALLOCATOR),
        )


def _nameless(stage: Stage, *, edit: Edit) -> Rejection:
    return Rejection(
        code="NamelessConnector",
        stage=stage,
        option=KV_TRANSFER,
        message=f"{KV_TRANSFER}: a connector without kv_connector; dotted options replace the JSON of the same option, they are"
        " not added to it",
        says="Connector name is not set",
        edit=edit,
    )


def _without(*keys: str) -> Any:
    return lambda written: {key: value for key, value in written.items() if key not in keys}


def _without_member(member: Connector) -> Edit:
    return _changed(member, lambda _: None, what=f"removed {member.name or 'the connector without a name'}")


def _changed(member: Connector, change: Any, *, what: str) -> Edit:
    """`change` makes of the connector as written another one, or None for none."""
    return with_json(KV_TRANSFER, lambda config: _replaced(config, member.written, change) or {}, what=what)


def _replaced(config: Json, old: Json, change: Any) -> Json | None:
    if config == old:
        changed: Json | None = change(config)
        return changed
    if config.get("kv_connector") != MULTI:
        return config
    members = members_of(config)
    kept = [member for member in (_replaced(member, old, change) for member in members) if member is not None]
    return with_members(config, kept) if len(kept) == len(members) else joined(kept)
