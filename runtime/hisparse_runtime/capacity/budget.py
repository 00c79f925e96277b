"""Memory of one pod becomes the host pool and the offload tier, and back.

    memory request = limit  =  /dev/shm  +  private host pools  +  working set  +  device pool (on a CPU)  +  headroom
    /dev/shm                =  shared host pools  +  offload tiers  +  slack

Request and limit are equal: pages of /dev/shm count into the pod's limit as they are touched, and a pod that uses more than it
requested is the first that a node under pressure evicts. Sizes of a tier are those of one data-parallel replica, as in vLLM's
options; a pod has `replicas` of each, and where ranks cannot share a host pool, one for each rank.
"""

from bisect import bisect_right
from dataclasses import dataclass

from hisparse_runtime.capacity.errors import FieldNames, HostMemoryError
from hisparse_runtime.capacity.units import MIB, human_bytes, round_up

# The null block and one that can hold a page.
MINIMUM_OFFLOAD_BLOCKS = 2
# The kernel charges a pod for the page tables of what its processes map: an entry of 8 bytes for each page of 4 KiB.
_PAGE_TABLE_SHARE = 8 / 4096
_SMALLEST_HEADROOM_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """What the two tiers are made of. A tier that is given by the spec has its size here, in bytes, and is not tuned."""

    host_block_bytes: int
    offload_block_bytes: int
    page_tokens: int
    min_host_blocks: int
    host_pool_bytes: int | None = None
    cpu_bytes_to_use: int | None = None

    def offload_beside(self, host_pool_bytes: int) -> int:
        """Bytes of an offload tier for as many tokens as a host pool of so many bytes."""
        return host_pool_bytes // self.host_block_bytes * self.offload_block_bytes

    def host_tokens(self, host_pool_bytes: int) -> int:
        """Tokens that a host pool of so many bytes holds; its first block holds no data."""
        return max(0, host_pool_bytes // self.host_block_bytes - 1) * self.page_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """What a pod holds beside one replica's tiers.

    `host_pool_copies`: 1 where all ranks map one host pool in /dev/shm, else the number of ranks, each with private memory.
    `mapping_processes` map the shared pools. `device_pool_bytes` is 0 where the device pool is not host memory.
    """

    working_set_bytes: int
    shm_slack_bytes: int
    device_pool_bytes: int = 0
    replicas: int = 1
    host_pool_copies: int = 1
    shares_host_pool: bool = True
    mapping_processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMemory:
    """What a pod with given tiers needs. `shm_bytes` is the size limit of /dev/shm, `memory_bytes` request and limit."""

    host_pool_bytes: int
    cpu_bytes_to_use: int
    shm_bytes: int
    memory_bytes: int
    arithmetic: tuple[str, ...]


def split_budget(tiers: Tiers, shape: PodShape, *, budget_bytes: int, names: FieldNames) -> PodMemory:
    """The largest tiers that a pod of `budget_bytes` can have.

    Tuned tiers hold the same number of tokens: a cached prefix is only of use where its KV and its indexer keys are both there.
    A tier that is given stays as it is. With a given host pool, the offload tier holds as many tokens or, when memory is short,
    what is left; with a given offload tier, the host pool takes what is left, since it holds running requests as well.
    Raises HostMemoryError when the smallest possible pod is larger than the budget.
    """
    smallest = smallest_pod(tiers, shape)
    if smallest.memory_bytes > budget_bytes:
        raise HostMemoryError(
            f"one pod needs at least {human_bytes(smallest.memory_bytes)} ({'; '.join(smallest.arithmetic)}) and has"
            f" {human_bytes(budget_bytes)}: give it more memory, or lower {names.max_model_len} or the pool sizes that are given"
        )

    def pod(blocks: int) -> PodMemory:
        """The pod with `blocks` blocks in each tier that is tuned."""
        host = blocks * tiers.host_block_bytes if tiers.host_pool_bytes is None else tiers.host_pool_bytes
        offload = blocks * tiers.offload_block_bytes if tiers.cpu_bytes_to_use is None else tiers.cpu_bytes_to_use
        return pod_memory(host, offload, shape)

    most_blocks = budget_bytes // min(tiers.host_block_bytes, tiers.offload_block_bytes)
    if tiers.host_pool_bytes is not None:
        most_blocks = tiers.host_pool_bytes // tiers.host_block_bytes
    # memory grows with the blocks, so the most that fit are found by bisection; zero blocks in a tuned tier always fit here
    blocks = bisect_right(range(most_blocks + 1), budget_bytes, key=lambda blocks: pod(blocks).memory_bytes) - 1
    return pod(blocks)


def smallest_pod(tiers: Tiers, shape: PodShape) -> PodMemory:
    """The least memory that a pod can do with: given tiers as they are, tuned ones at their minimum."""
    host, offload = tiers.host_pool_bytes, tiers.cpu_bytes_to_use
    if offload is None:
        # tuned tiers hold the same number of tokens
        blocks = tiers.min_host_blocks if host is None else MINIMUM_OFFLOAD_BLOCKS
        offload = blocks * tiers.offload_block_bytes
    if host is None:
        host = tiers.min_host_blocks * tiers.host_block_bytes
    return pod_memory(host, offload, shape)


def pod_memory(host_pool_bytes: int, cpu_bytes_to_use: int, shape: PodShape) -> PodMemory:
    """What a pod with these tiers needs, in whole MiB."""
    all_host_bytes = host_pool_bytes * shape.replicas * shape.host_pool_copies
    all_offload_bytes = cpu_bytes_to_use * shape.replicas
    private_bytes = 0 if shape.shares_host_pool else all_host_bytes
    pools_bytes = all_host_bytes - private_bytes + all_offload_bytes
    shm_bytes = round_up(pools_bytes + shape.shm_slack_bytes, to_bytes=MIB)
    used_bytes = shm_bytes + private_bytes + shape.working_set_bytes + shape.device_pool_bytes
    headroom_bytes = _headroom_bytes(used_bytes, mapped_bytes=pools_bytes * shape.mapping_processes + private_bytes)
    memory_bytes = round_up(used_bytes + headroom_bytes, to_bytes=MIB)
    shm_parts = {
        f"host pool{_times(shape.replicas)}": all_host_bytes - private_bytes,
        f"offload{_times(shape.replicas)}": all_offload_bytes,
        "slack": shape.shm_slack_bytes,
    }
    memory_parts = {
        "shared memory": shm_bytes,
        f"private host pools{_times(shape.replicas * shape.host_pool_copies)}": private_bytes,
        "working set": shape.working_set_bytes,
        "device pool": shape.device_pool_bytes,
        "headroom": headroom_bytes,
    }
    return PodMemory(
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=cpu_bytes_to_use,
        shm_bytes=shm_bytes,
        memory_bytes=memory_bytes,
        arithmetic=(f"shared memory: {_sum(shm_parts, shm_bytes)}", f"memory of one pod: {_sum(memory_parts, memory_bytes)}"),
    )


def tier_arithmetic(tiers: Tiers, *, host_pool_bytes: int, cpu_bytes_to_use: int) -> tuple[str, str]:
    """What each tier of one replica holds, as text. The first block of a host pool holds no data."""
    return (
        _tier(
            "host pool",
            host_pool_bytes,
            tiers.host_block_bytes,
            tokens=tiers.host_tokens(host_pool_bytes),
            is_given=tiers.host_pool_bytes is not None,
        ),
        _tier(
            "offload",
            cpu_bytes_to_use,
            tiers.offload_block_bytes,
            tokens=cpu_bytes_to_use // tiers.offload_block_bytes * tiers.page_tokens,
            is_given=tiers.cpu_bytes_to_use is not None,
        ),
    )


def _tier(name: str, size_bytes: int, block_bytes: int, *, tokens: int, is_given: bool) -> str:
    origin = "as given" if is_given else "tuned"
    blocks = f"{size_bytes // block_bytes:,} blocks of {human_bytes(block_bytes)}"
    return f"{name}: {human_bytes(size_bytes)} {origin}, {blocks}, {tokens:,} tokens"


def _headroom_bytes(used_bytes: int, *, mapped_bytes: int) -> int:
    """Room below the limit for what the kernel charges to the pod: page tables, slabs, socket buffers.

    Without it the pod is killed at the moment that its pools are full.
    """
    return max(_SMALLEST_HEADROOM_BYTES, used_bytes // 100 + int(mapped_bytes * _PAGE_TABLE_SHARE))


def _sum(parts: dict[str, int], total_bytes: int) -> str:
    return " + ".join(f"{human_bytes(size)} {name}" for name, size in parts.items() if size) + f" = {human_bytes(total_bytes)}"


def _times(count: int) -> str:
    return f" x {count}" if count > 1 else ""
