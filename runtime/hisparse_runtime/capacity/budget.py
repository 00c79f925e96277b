"""Memory of one pod becomes the host pool and the offload tier, and back.

    memory request = limit  =  /dev/shm  +  working set  +  device pool (of an engine on the CPU)  +  headroom
    /dev/shm                =  host pool + offload tier  +  slack

Request and limit are equal: pages of /dev/shm count into the pod's limit as they are touched, and a pod that uses more than it
requested is the first that a node under pressure evicts.
"""

from bisect import bisect_right
from dataclasses import dataclass

from hisparse_runtime.capacity.pools import HostMemoryError, check_host_pool, minimum_host_blocks, pool_tokens
from hisparse_runtime.capacity.units import GIB, MIB, human_bytes, round_up
from hisparse_runtime.geometry import ModelGeometry

# The engine held 91 MiB beside its host pool and offload tier, device pool included, while it served 16 requests of 2,000 to
# 3,900 tokens at once with the model of examples/embedded.yaml (Linux x86-64); twice that leaves room for larger weights.
EMBEDDED_WORKING_SET_BYTES = 192 * MIB

# The null block and one that can hold a page.
_MINIMUM_OFFLOAD_BLOCKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMemory:
    """What a pod with given pools needs. `shm_bytes` is the size limit of /dev/shm, `memory_bytes` request and limit."""

    shm_bytes: int
    memory_bytes: int
    arithmetic: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One pod's memory, split."""

    host_pool_bytes: int
    cpu_bytes_to_use: int
    shm_bytes: int
    memory_bytes: int
    arithmetic: tuple[str, ...]


def split_budget(
    *,
    geometry: ModelGeometry,
    budget_bytes: int,
    device_pool_bytes: int,
    max_model_len: int,
    working_set_bytes: int = EMBEDDED_WORKING_SET_BYTES,
    host_pool_bytes: int | None = None,
    cpu_bytes_to_use: int | None = None,
) -> Budget:
    """The largest pools that a pod of `budget_bytes` can have.

    Tuned tiers hold the same number of tokens: a cached prefix is only of use where its KV and its indexer keys are both there.
    A tier that is given stays as it is. With a given host pool, the offload tier holds as many tokens or, when memory is short,
    what is left; with a given offload tier, the host pool takes what is left, since it holds running requests as well.
    Raises HostMemoryError when the smallest possible pod is larger than the budget, or when a given host pool is too small.
    """
    smallest = smallest_pod(
        geometry=geometry,
        device_pool_bytes=device_pool_bytes,
        max_model_len=max_model_len,
        working_set_bytes=working_set_bytes,
        host_pool_bytes=host_pool_bytes,
        cpu_bytes_to_use=cpu_bytes_to_use,
    )
    if smallest.memory_bytes > budget_bytes:
        raise HostMemoryError(
            f"one pod needs at least {human_bytes(smallest.memory_bytes)} ({'; '.join(smallest.arithmetic)}) and has"
            f" {human_bytes(budget_bytes)}: give it more memory, or lower maxModelLen, engine.gpuKVCache or the given pool sizes"
        )

    def sizes(blocks: int) -> tuple[int, int]:
        """Pools with `blocks` blocks in each tier that is tuned."""
        host = blocks * geometry.host_page_bytes if host_pool_bytes is None else host_pool_bytes
        offload = blocks * geometry.indexer_page_bytes if cpu_bytes_to_use is None else cpu_bytes_to_use
        return host, offload

    def memory_bytes(blocks: int) -> int:
        host, offload = sizes(blocks)
        return pod_memory(host, offload, device_pool_bytes=device_pool_bytes, working_set_bytes=working_set_bytes).memory_bytes

    most_blocks = budget_bytes // min(geometry.host_page_bytes, geometry.indexer_page_bytes)
    if host_pool_bytes is not None:
        most_blocks = host_pool_bytes // geometry.host_page_bytes
    # memory grows with the blocks, so the most that fit are found by bisection; zero blocks in a tuned tier always fit here
    blocks = bisect_right(range(most_blocks + 1), budget_bytes, key=memory_bytes) - 1
    host, offload = sizes(blocks)
    needs = pod_memory(host, offload, device_pool_bytes=device_pool_bytes, working_set_bytes=working_set_bytes)
    return Budget(
        host_pool_bytes=host,
        cpu_bytes_to_use=offload,
        shm_bytes=needs.shm_bytes,
        memory_bytes=needs.memory_bytes,
        arithmetic=(
            _tier("host pool", host, geometry.host_page_bytes, geometry.page_tokens, is_given=host_pool_bytes is not None),
            _tier("offload", offload, geometry.indexer_page_bytes, geometry.page_tokens, is_given=cpu_bytes_to_use is not None),
            *needs.arithmetic,
        ),
    )


def smallest_pod(
    *,
    geometry: ModelGeometry,
    device_pool_bytes: int,
    max_model_len: int,
    working_set_bytes: int = EMBEDDED_WORKING_SET_BYTES,
    host_pool_bytes: int | None = None,
    cpu_bytes_to_use: int | None = None,
) -> PodMemory:
    """The least memory that a pod can do with: given tiers as they are, tuned ones at their minimum.

    Raises HostMemoryError when a given host pool cannot hold one request of `max_model_len` tokens.
    """
    if host_pool_bytes is not None:
        check_host_pool(geometry=geometry, host_pool_bytes=host_pool_bytes, max_model_len=max_model_len)
    minimum_blocks = minimum_host_blocks(geometry, max_model_len=max_model_len)
    if host_pool_bytes is None:
        host_pool_bytes = minimum_blocks * geometry.host_page_bytes
        # tuned tiers hold the same number of tokens
        minimum_offload_blocks = minimum_blocks
    else:
        minimum_offload_blocks = _MINIMUM_OFFLOAD_BLOCKS
    if cpu_bytes_to_use is None:
        cpu_bytes_to_use = minimum_offload_blocks * geometry.indexer_page_bytes
    return pod_memory(host_pool_bytes, cpu_bytes_to_use, device_pool_bytes=device_pool_bytes, working_set_bytes=working_set_bytes)


def pod_memory(
    host_pool_bytes: int,
    cpu_bytes_to_use: int,
    *,
    device_pool_bytes: int,
    working_set_bytes: int = EMBEDDED_WORKING_SET_BYTES,
) -> PodMemory:
    """What a pod with these pools needs, in whole MiB. `device_pool_bytes` is 0 where the device pool is not host memory."""
    pools_bytes = host_pool_bytes + cpu_bytes_to_use
    slack_bytes = _slack_bytes(pools_bytes)
    shm_bytes = round_up(pools_bytes + slack_bytes, to_bytes=MIB)
    used_bytes = shm_bytes + working_set_bytes + device_pool_bytes
    headroom_bytes = _headroom_bytes(used_bytes)
    memory_bytes = round_up(used_bytes + headroom_bytes, to_bytes=MIB)
    shm_sum = (
        f"{human_bytes(host_pool_bytes)} host pool + {human_bytes(cpu_bytes_to_use)} offload + {human_bytes(slack_bytes)} slack"
    )
    memory_sum = (
        f"{human_bytes(shm_bytes)} shared memory + {human_bytes(working_set_bytes)} working set"
        f" + {human_bytes(device_pool_bytes)} device pool + {human_bytes(headroom_bytes)} headroom"
    )
    return PodMemory(
        shm_bytes=shm_bytes,
        memory_bytes=memory_bytes,
        arithmetic=(
            f"shared memory: {shm_sum} = {human_bytes(shm_bytes)}",
            f"memory of one pod: {memory_sum} = {human_bytes(memory_bytes)}",
        ),
    )


def fixed_host_pool_bytes(host_pool_gib: float) -> int:
    """The bytes that the engine makes of its option --host-pool-gib."""
    return int(host_pool_gib * GIB)


def _slack_bytes(pools_bytes: int) -> int:
    """Room in /dev/shm beside the pools: the last page of each file, and what libraries put there.

    Writing past the end of /dev/shm kills the process.
    """
    return max(64 * MIB, pools_bytes // 50)


def _headroom_bytes(used_bytes: int) -> int:
    """Room below the limit for what the kernel charges to the pod: page tables (0.2 % of mapped memory), slabs, socket buffers.

    Without it the pod is killed at the moment that its pools are full.
    """
    return max(64 * MIB, used_bytes * 3 // 100)


def _tier(name: str, size_bytes: int, page_bytes: int, page_tokens: int, *, is_given: bool) -> str:
    tokens = pool_tokens(size_bytes, block_bytes=page_bytes, page_tokens=page_tokens)
    origin = "as given" if is_given else "tuned"
    blocks = f"{size_bytes // page_bytes:,} blocks of {human_bytes(page_bytes)}"
    return f"{name}: {human_bytes(size_bytes)} {origin}, {blocks}, {tokens:,} tokens"
