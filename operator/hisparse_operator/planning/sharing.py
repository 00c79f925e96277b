"""What nodes have left, and one pod's share of it."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hisparse_operator.planning.facts import NodeFacts, PodRequest
from hisparse_operator.planning.plan import Infeasible, InfeasibleReason
from hisparse_runtime.capacity import PodMemory, human_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one eligible node has for pods of the deployment. `max_pods` is None where GPUs do not limit their number."""

    node: str
    left_bytes: int
    max_pods: int | None
    arithmetic: str

    def pods_of(self, memory_bytes: int) -> int:
        """Pods of that size that fit."""
        return self.limited(self.left_bytes // memory_bytes)

    def limited(self, num_pods: int) -> int:
        return num_pods if self.max_pods is None else min(num_pods, self.max_pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`num_pods` pods on the deciding node have `share_bytes` each."""

    room: Room
    num_pods: int
    share_bytes: int
    arithmetic: tuple[str, ...]


def room(node: NodeFacts, *, gpus: int, deployment: str, pods: Sequence[PodRequest]) -> Room:
    """What other pods leave of the node. The deployment's own pods do not count: theirs is the memory that is planned."""
    others_bytes = sum(pod.memory_bytes for pod in pods if pod.node == node.name and pod.deployment != deployment)
    left_bytes = max(0, node.allocatable_memory_bytes - others_bytes)
    allocatable, requested, left = (human_bytes(size) for size in (node.allocatable_memory_bytes, others_bytes, left_bytes))
    return Room(
        node=node.name,
        left_bytes=left_bytes,
        max_pods=node.allocatable_gpus // gpus if gpus else None,
        arithmetic=f"node {node.name}: {allocatable} allocatable - {requested} requested by other pods = {left}",
    )


def share_of_one_pod(rooms: Sequence[Room], *, replicas: int, smallest: PodMemory, what_fits: Callable[[int], str]) -> Share:
    """Memory of one pod when the pods are spread evenly over all rooms; the room with the smallest share decides.

    Where that is too little for the smallest pod (a node is full of other pods, say), or GPUs keep the pods from spreading
    evenly, the pods go where there is room: the share is then the largest of which enough fit. A plan for no replicas is one for
    the first pod to come. Raises Infeasible when there are too few places; `what_fits` tells the next step from the most that a
    node has left.
    """
    wanted = max(1, replicas)
    if all(room.max_pods is not None for room in rooms):
        # more pods than GPUs wait for GPUs, whatever their memory
        wanted = min(wanted, sum(room.limited(wanted) for room in rooms))
    even = -(-wanted // len(rooms))
    deciding = min(rooms, key=lambda room: (room.left_bytes // room.limited(even), room.node))
    num_pods = deciding.limited(even)
    share_bytes = deciding.left_bytes // num_pods
    if _places(rooms, smallest.memory_bytes) < wanted:
        message = _too_few_places(rooms, wanted=wanted, smallest=smallest, what_fits=what_fits)
        raise Infeasible(InfeasibleReason.INSUFFICIENT_HOST_MEMORY, message)
    if share_bytes >= smallest.memory_bytes and _places(rooms, share_bytes) >= wanted:
        nodes = "1 node" if len(rooms) == 1 else f"{len(rooms)} nodes"
        how = f"spread over {nodes}: {deciding.node} decides with {num_pods} of them"
    else:
        deciding, share_bytes = _largest_share(rooms, wanted=wanted, smallest=smallest)
        num_pods = deciding.pods_of(share_bytes)
        how = f"cannot be spread evenly: {deciding.node} decides with {num_pods} of them"
    pods = "1 pod" if replicas == 1 else f"{replicas} pods"
    division = f"{human_bytes(deciding.left_bytes)} / {num_pods} = {human_bytes(share_bytes)} for one pod"
    return Share(
        room=deciding,
        num_pods=num_pods,
        share_bytes=share_bytes,
        arithmetic=(deciding.arithmetic, f"{pods} {how}, {division}"),
    )


def _largest_share(rooms: Sequence[Room], *, wanted: int, smallest: PodMemory) -> tuple[Room, int]:
    # the larger the share, the fewer places: how many shares have enough is found by bisection
    shares = range(smallest.memory_bytes, max(room.left_bytes for room in rooms) + 1)
    share_bytes = shares[bisect_right(shares, -wanted, key=lambda share: -_places(rooms, share)) - 1]
    deciding = next(room for room in rooms if room.pods_of(share_bytes + 1) < room.pods_of(share_bytes))
    return deciding, share_bytes


def _places(rooms: Sequence[Room], memory_bytes: int) -> int:
    return sum(room.pods_of(memory_bytes) for room in rooms)


def _too_few_places(rooms: Sequence[Room], *, wanted: int, smallest: PodMemory, what_fits: Callable[[int], str]) -> str:
    largest = max(rooms, key=lambda room: (room.left_bytes, room.node))
    places = _places(rooms, smallest.memory_bytes)
    pods = "1 pod needs" if wanted == 1 else f"each of {wanted} pods needs"
    needs = f"{pods} at least {human_bytes(smallest.memory_bytes)} ({'; '.join(smallest.arithmetic)})"
    nodes = "the eligible node" if len(rooms) == 1 else f"the roomiest of {len(rooms)} eligible nodes"
    most = f"{nodes} has {human_bytes(largest.left_bytes)} left ({largest.arithmetic})"
    if places == 0:
        return f"{needs}; {most}. Next: {what_fits(largest.left_bytes)}, or free memory on a node"
    return f"{needs} and there is room for {places}; {most}. Next: lower spec.replicas to {places}, free memory or add a node"
