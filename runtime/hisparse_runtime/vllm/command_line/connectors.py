"""KV connectors: which there are, and what a person wrote into `--kv-transfer-config`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

HISPARSE = "HiSparseConnector"
OFFLOADING = "OffloadingConnector"
NIXL = "NixlConnector"
NIXL_PUSH = "NixlPushConnector"
MULTI = "MultiConnector"
KV_BOTH = "kv_both"
KV_ROLES = ("kv_producer", "kv_consumer", KV_BOTH)
TIERING_SPEC = "TieringOffloadingSpec"
OFFLOADING_SPECS = ("CPUOffloadingSpec", TIERING_SPEC)
# With HiSparse, any other at the top gets a warning that means nothing for the connector itself.
QUIET = frozenset({NIXL, MULTI, "MooncakeStoreConnector"})
# The same names in 0.30 to 0.33.
KNOWN = (
    HISPARSE,
    OFFLOADING,
    NIXL,
    "NixlPullConnector",
    NIXL_PUSH,
    MULTI,
    "MooncakeConnector",
    "MooncakeStoreConnector",
    "SimpleCPUOffloadConnector",
    "LMCacheConnectorV1",
    "LMCacheMPConnector",
    "MoRIIOConnector",
    "FlexKVConnectorV1",
    "HF3FSKVConnector",
    "DecodeBenchConnector",
    "ExampleConnector",
    "ExampleHiddenStatesConnector",
)
# They know one cache group only, and HiSparse makes dozens.
WITHOUT_HYBRID_CACHE = frozenset({"LMCacheConnectorV1", "FlexKVConnectorV1", "HF3FSKVConnector", "ExampleConnector"})

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """One connector as it was written. None where a field is missing or is none of its type; `written` has it as it is."""

    name: str | None
    role: str | None
    extra: Json
    children: tuple["Connector", ...]
    written: Json

    @property
    def is_multi(self) -> bool:
        return self.name == MULTI

    @property
    def all(self) -> Iterator["Connector"]:
        """Itself and all below it."""
        yield self
        for child in self.children:
            yield from child.all

    @property
    def members(self) -> tuple["Connector", ...]:
        """Those that vLLM looks at for HiSparse: itself, or the children of a MultiConnector; no deeper."""
        return self.children if self.is_multi else (self,)

    def named(self, name: str) -> tuple["Connector", ...]:
        return tuple(member for member in self.members if member.name == name)


def read_connector(written: Mapping[str, Any]) -> Connector:
    """Takes whatever was written; what makes no sense is left for the rules to name."""
    name, role, extra = written.get("kv_connector"), written.get("kv_role"), written.get("kv_connector_extra_config")
    extra = extra if isinstance(extra, dict) else {}
    listed = extra.get("connectors") if name == MULTI else None
    children = listed if isinstance(listed, list) else []
    return Connector(
        name=name if isinstance(name, str) else None,
        role=role if isinstance(role, str) else None,
        extra=extra,
        children=tuple(read_connector(child) for child in children if isinstance(child, dict))
        if isinstance(children, list)
        else (),
        written=dict(written),
    )
