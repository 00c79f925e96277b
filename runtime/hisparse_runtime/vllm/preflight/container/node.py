"""The node's memory, which no limit of the container shows in: what is free, what is set aside, how it is spread."""

import re
from dataclasses import dataclass
from pathlib import Path

from hisparse_runtime.capacity import KIB
from hisparse_runtime.vllm.preflight.container.files import text_of

_LINE = re.compile(r"(?:Node \d+ )?(\w+):\s+(\d+)")
_NODES = "sys/devices/system/node"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """`available_bytes`: what psutil.virtual_memory().available says, by which vLLM decides. `huge_pages_bytes`: of all sizes."""

    total_bytes: int
    available_bytes: int
    huge_pages_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """`is_allowed`: the container may take memory of it."""

    number: int
    total_bytes: int
    is_allowed: bool


def node_memory(root: Path) -> NodeMemory | None:
    """None where /proc/meminfo does not say."""
    kib = _numbers(text_of(root / "proc/meminfo"))
    if "MemTotal" not in kib or "MemAvailable" not in kib:
        return None
    # kernels before 4.20 count the default size only
    huge_kib = kib.get("Hugetlb", kib.get("HugePages_Total", 0) * kib.get("Hugepagesize", 0))
    return NodeMemory(
        total_bytes=kib["MemTotal"] * KIB,
        available_bytes=kib["MemAvailable"] * KIB,
        huge_pages_bytes=huge_kib * KIB,
    )


def numa_nodes(root: Path) -> tuple[NumaNode, ...]:
    """Those with memory; empty where the kernel does not say."""
    status = text_of(root / "proc/self/status")
    listed = re.search(r"^Mems_allowed_list:\s*(\S+)", status, re.MULTILINE)
    allowed = None if listed is None else _members(listed[1])
    nodes = []
    for number in sorted(_members(text_of(root / _NODES / "has_memory"))):
        kib = _numbers(text_of(root / _NODES / f"node{number}" / "meminfo"))
        if "MemTotal" in kib:
            is_allowed = allowed is None or number in allowed
            nodes.append(NumaNode(number=number, total_bytes=kib["MemTotal"] * KIB, is_allowed=is_allowed))
    return tuple(nodes)


def _numbers(text: str) -> dict[str, int]:
    matches = (_LINE.match(line) for line in text.splitlines())
    return {match[1]: int(match[2]) for match in matches if match is not None}


def _members(text: str) -> frozenset[int]:
    """`0-1,4` as numbers."""
    members: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            members.update(range(int(first), int(last or first) + 1))
    return frozenset(members)
