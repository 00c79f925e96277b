"""Bugs of released vLLM that a way to run it meets, from its issues and its history."""

from collections.abc import Callable
from dataclasses import dataclass

from hisparse_runtime.geometry import VllmVersion

# From so many cache groups on, the scheduler's cost shows; GLM-5.3 has 20 resident ones, DeepSeek-V3.2 has 6.
_MANY_GROUPS = 10
FULL_GRAPHS_BUG = "vllm #56158"
_FIRST = ("0.30",)
_BEFORE_32 = ("0.30", "0.31")
_BEFORE_33 = ("0.30", "0.31", "0.32")
_ALL = ("0.30", "0.31", "0.32", "0.33")


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """How an engine with HiSparse is run. `num_resident_groups` None: not known."""

    has_full_graphs: bool = False
    has_speculation: bool = False
    has_nixl: bool = False
    has_cache_metrics: bool = False
    is_tensor_parallel: bool = False
    num_resident_groups: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBug:
    """`name` is the issue, or the commit that puts it right."""

    name: str
    text: str
    versions: tuple[str, ...]
    is_met: Callable[[Features], bool]

    @property
    def advice(self) -> str:
        last = self.versions[-1]
        return "open in 0.33" if last == _ALL[-1] else f"fixed in {_ALL[_ALL.index(last) + 1]}"


def bugs_met(version: VllmVersion, features: Features) -> tuple[KnownBug, ...]:
    return tuple(bug for bug in _BUGS if version.name in bug.versions and bug.is_met(features))


def _always(_: Features) -> bool:
    return True


_BUGS = (
    KnownBug(
        name=FULL_GRAPHS_BUG,
        text="cudagraph_mode FULL is accepted, and replayed graphs leave out rows of the host pool: output turns to garbage",
        versions=_BEFORE_32,
        is_met=lambda features: features.has_full_graphs,
    ),
    KnownBug(
        name="vllm #57457",
        text="prefix hits under load can end the engine: Cannot get N free blocks from the pool",
        versions=_FIRST,
        is_met=_always,
    ),
    KnownBug(
        name="vllm 90e13fc757",
        text="pages that get no host block, because the host pool is full, stay on the GPU for ever; the engine can halt",
        versions=_FIRST,
        is_met=_always,
    ),
    KnownBug(
        name="vllm ff1b87cca2",
        text="a request that finishes while its pages are being copied leaves no prefix: short turns are computed again",
        versions=_FIRST,
        is_met=_always,
    ),
    KnownBug(
        name="vllm 3a69636645",
        text="a long prompt in chunks can outgrow what it was admitted with, and be preempted without end",
        versions=_FIRST,
        is_met=_always,
    ),
    KnownBug(
        name="vllm f7999d2e44",
        text="the GPU pool is checked against the indexer's pages only: an engine starts with less than one request needs",
        versions=_FIRST,
        is_met=_always,
    ),
    KnownBug(
        name="vllm 2798f66860",
        text="draft tokens that are verified together evict each other's hot rows: low hit rate",
        versions=_FIRST,
        is_met=lambda features: features.has_speculation,
    ),
    KnownBug(
        name="vllm 4056c8ac1f",
        text="draft layers read stale host rows: fewer drafts are accepted under load",
        versions=_FIRST,
        is_met=lambda features: features.has_speculation,
    ),
    KnownBug(
        name="vllm 73c7cae4d7",
        text="--kv-cache-metrics mixes events of the host pool into the GPU's series",
        versions=_FIRST,
        is_met=lambda features: features.has_cache_metrics,
    ),
    KnownBug(
        name="vllm #57930",
        text="the scheduler looks at prefixes once for each resident group: with many of them it is bound by the CPU",
        versions=_BEFORE_32,
        is_met=lambda features: features.num_resident_groups is None or features.num_resident_groups >= _MANY_GROUPS,
    ),
    KnownBug(
        name="vllm e82b80099a",
        text="a step's overhead grows with the length of the contexts",
        versions=_BEFORE_32,
        is_met=_always,
    ),
    KnownBug(
        name="vllm: shared event",
        text="on steps without a forward pass, ranks that share a host pool can seldom read old rows",
        versions=_BEFORE_32,
        is_met=lambda features: features.is_tensor_parallel,
    ),
    KnownBug(
        name="vllm #53781",
        text="a prefill server that packs its blocks cannot send to a HiSparse engine: ValueError about region geometry",
        versions=_BEFORE_33,
        is_met=lambda features: features.has_nixl,
    ),
    KnownBug(
        name="vllm #42632",
        text="the host pool is pinned twice at start-up, under a lock of the whole driver: hundreds of GiB take minutes",
        versions=_BEFORE_33,
        is_met=_always,
    ),
    KnownBug(
        name="vllm #56699",
        text="an engine that imports KV for long ended with cudaErrorLaunchFailure; its cause is not known",
        versions=_ALL,
        is_met=lambda features: features.has_nixl,
    ),
    KnownBug(
        name="vllm #57939",
        text="each import's last token takes its batch off the full CUDA graphs: throughput dips",
        versions=_ALL,
        is_met=lambda features: features.has_nixl,
    ),
)
