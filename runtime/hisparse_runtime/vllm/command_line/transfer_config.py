"""`--kv-transfer-config` as it is written: one connector, or several in a MultiConnector."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hisparse_runtime.vllm.command_line.connectors import HISPARSE, KV_BOTH, MULTI, NIXL, OFFLOADING, TIERING_SPEC

Json = dict[str, Any]


def hisparse_connector(host_pool_gib: float) -> Json:
    """`host_pool_gib`: GiB of one data-parallel replica, a number and never a text with a unit."""
    return connector(HISPARSE, {"host_pool_gib": host_pool_gib})


def offloading_connector(cpu_bytes_to_use: int, *, spec_name: str | None = TIERING_SPEC) -> Json:
    """`cpu_bytes_to_use`: bytes of one replica, of all its ranks together. `spec_name` None is vLLM's default."""
    spec = {} if spec_name is None else {"spec_name": spec_name}
    return connector(OFFLOADING, {**spec, "cpu_bytes_to_use": cpu_bytes_to_use})


def nixl_connector() -> Json:
    """kv_both on both sides: the shape that upstream checks with HiSparse."""
    return connector(NIXL)


def connector(name: str, extra: Mapping[str, Any] | None = None) -> Json:
    written: Json = {"kv_connector": name, "kv_role": KV_BOTH}
    return written | {"kv_connector_extra_config": dict(extra)} if extra else written


def joined(children: Sequence[Json]) -> Json | None:
    """One as it is, several in a MultiConnector, None for none. The first one that has a prefix loads it, so HiSparse leads."""
    if len(children) < 2:
        return dict(children[0]) if children else None
    return connector(MULTI, {"connectors": [dict(child) for child in children]})


def with_hisparse(config: Json, host_pool_gib: object) -> Json:
    """The transfer config with a HiSparseConnector in front; one that is there keeps a pool that it has."""
    added = connector(HISPARSE, {"host_pool_gib": host_pool_gib})
    if not config.get("kv_connector"):
        return added
    extra = config.setdefault("kv_connector_extra_config", {})
    if config["kv_connector"] == HISPARSE:
        if extra.get("host_pool_gib") is None:
            extra["host_pool_gib"] = host_pool_gib
        return config
    if config["kv_connector"] != MULTI:
        config.setdefault("kv_role", KV_BOTH)
        together = joined([added, {key: value for key, value in config.items() if value != {}}])
        assert together is not None
        return together
    children = extra.setdefault("connectors", [])
    present = [child for child in children if isinstance(child, dict) and child.get("kv_connector") == HISPARSE]
    if not present:
        children.insert(0, added)
    elif present[0].setdefault("kv_connector_extra_config", {}).get("host_pool_gib") is None:
        present[0]["kv_connector_extra_config"]["host_pool_gib"] = host_pool_gib
    return config


def without_hisparse(config: Json) -> Json:
    """The transfer config with what is left when HiSparse is taken away; empty when that is nothing."""
    if config.get("kv_connector") == HISPARSE:
        return {}
    if config.get("kv_connector") != MULTI:
        return config
    children = config.get("kv_connector_extra_config", {}).get("connectors", [])
    return joined([child for child in children if child.get("kv_connector") != HISPARSE]) or {}


def changed_members(config: Json, name: str, change: Callable[[Json], Json]) -> Json:
    """`change` gets the extra config of each connector of this name, at the top or in the MultiConnector there."""
    members = config.get("kv_connector_extra_config", {}).get("connectors") if config.get("kv_connector") == MULTI else [config]
    for member in members if isinstance(members, list) else ():
        if isinstance(member, dict) and member.get("kv_connector") == name:
            member["kv_connector_extra_config"] = change(member.get("kv_connector_extra_config", {}))
    return config
