"""What planning needs to know of nodes and pods: slim, frozen, free of any Kubernetes client."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node. Bytes and whole GPUs; `allocatable` is after the kubelet's own reserves."""

    name: str
    ready: bool
    unschedulable: bool
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    allocatable_memory_bytes: int
    allocatable_gpus: int


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one placed, unfinished pod takes of a node. `deployment`: namespace/name of its HiSparseDeployment, if any."""

    node: str
    memory_bytes: int
    gpus: int
    deployment: str | None
