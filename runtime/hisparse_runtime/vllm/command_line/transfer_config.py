"""`--kv-transfer-config` as it is written: one connector, or several in a MultiConnector.

What a person wrote is taken as it is, so nothing here relies on its fields having their types.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hisparse_runtime.vllm.command_line.connectors import HISPARSE, KV_BOTH, MULTI, NIXL, OFFLOADING, TIERING_SPEC

Json = dict[str, Any]
_EXTRA = "kv_connector_extra_config"
_MODULE = "kv_connector_module_path"


def hisparse_connector(host_pool_gib: float, *, module: str | None = None) -> Json:
    """`host_pool_gib`: GiB of one data-parallel replica, a number and never a text with a unit.

    `module` has the connector's class; None is vLLM's own.
    """
    own = {} if module is None else {_MODULE: module}
    return connector(HISPARSE, {"host_pool_gib": host_pool_gib}) | own


def offloading_connector(cpu_bytes_to_use: int, *, spec_name: str | None = TIERING_SPEC) -> Json:
    """`cpu_bytes_to_use`: bytes of one replica, of all its ranks together. `spec_name` None is vLLM's default."""
    spec = {} if spec_name is None else {"spec_name": spec_name}
    return connector(OFFLOADING, {**spec, "cpu_bytes_to_use": cpu_bytes_to_use})


def nixl_connector() -> Json:
    """kv_both on both sides: the shape that upstream checks with HiSparse."""
    return connector(NIXL)


def connector(name: str, extra: Mapping[str, Any] | None = None) -> Json:
    written: Json = {"kv_connector": name, "kv_role": KV_BOTH}
    return written | {_EXTRA: dict(extra)} if extra else written


def joined(children: Sequence[Json]) -> Json | None:
    """One as it is, several in a MultiConnector, None for none. The first one that has a prefix loads it, so HiSparse leads."""
    if len(children) < 2:
        return dict(children[0]) if children else None
    return connector(MULTI, {"connectors": [dict(child) for child in children]})


def members_of(config: Json) -> list[Json]:
    """The connector itself, or the children of a MultiConnector."""
    if config.get("kv_connector") != MULTI:
        return [config] if config else []
    children = extra_of(config).get("connectors")
    return [child for child in children if isinstance(child, dict)] if isinstance(children, list) else []


def extra_of(config: Json) -> Json:
    """A connector's own settings; empty where they are none."""
    extra = config.get(_EXTRA)
    return extra if isinstance(extra, dict) else {}


def with_members(config: Json, members: Sequence[Json]) -> Json:
    """A MultiConnector with these children, and what it has beside them."""
    return config | {_EXTRA: extra_of(config) | {"connectors": list(members)}}


def with_hisparse(config: Json, host_pool_gib: object) -> Json:
    """With a HiSparseConnector in front; one that is there keeps a pool that it has."""
    added = connector(HISPARSE, {"host_pool_gib": host_pool_gib})
    members = members_of(config)
    if any(member.get("kv_connector") == HISPARSE for member in members):
        return changed_members(config, HISPARSE, lambda extra: extra | _missing(extra, host_pool_gib))
    if config.get("kv_connector") == MULTI:
        return with_members(config, [added, *members])
    # an option that was without a connector is nobody's
    others = [member for member in members if member.get("kv_connector")]
    return joined([added, *(_complete(other) for other in others)]) or {}


def without_hisparse(config: Json) -> Json:
    """What is left when HiSparse is taken away; empty when that is nothing."""
    return joined([member for member in members_of(config) if member.get("kv_connector") != HISPARSE]) or {}


def changed_members(config: Json, name: str, change: Callable[[Json], Json]) -> Json:
    """`change` gets the extra config of each connector of this name, at the top or in the MultiConnector there."""

    def changed(member: Json) -> Json:
        return member | {_EXTRA: change(extra_of(member))} if member.get("kv_connector") == name else member

    if config.get("kv_connector") != MULTI:
        return changed(config)
    return with_members(config, [changed(member) for member in members_of(config)])


def _complete(member: Json) -> Json:
    """As a child, which needs a role of its own."""
    kept = {key: value for key, value in member.items() if value != {}}
    return kept if "kv_role" in kept else kept | {"kv_role": KV_BOTH}


def _missing(extra: Json, host_pool_gib: object) -> Json:
    return {} if extra.get("host_pool_gib") is not None else {"host_pool_gib": host_pool_gib}
