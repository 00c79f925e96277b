"""What the operator knows of the cluster, and whom a change concerns.

Four informers feed it. A change wakes the object that it belongs to; a change of nodes or of what pods request wakes only the
objects that could not be placed, so that the heartbeats of a large cluster wake nobody.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from hisparse_operator.api import GROUP, PLURAL, VERSION
from hisparse_operator.cluster.api import Api
from hisparse_operator.cluster.informer import Informer
from hisparse_operator.cluster.queue import WorkQueue
from hisparse_operator.cluster.slim import DeploymentFacts, PodFacts, slim_deployment, slim_node, slim_object, slim_pod
from hisparse_operator.planning.facts import NodeFacts, PodRequest
from hisparse_operator.resources.names import MANAGED_SELECTOR

T = TypeVar("T")

# Pods and Deployments change several times within a moment; one reconciliation, and one status write, for all of it.
_CHILD_DELAY_SECONDS = 0.3
_CAPACITY_DELAY_SECONDS = 1.0


class Cache:
    """Objects, their Deployments, all pods, all nodes. Keys are `namespace/name` of the HiSparseDeployment."""

    def __init__(self, *, api: Api, queue: WorkQueue, namespaces: tuple[str, ...], on_gone: Callable[[str], None]) -> None:
        self._queue = queue
        self._on_gone = on_gone
        self._pods_of: dict[str, dict[str, PodFacts]] = {}
        self.unplaced: set[str] = set()
        """Objects that wait for nodes or memory: the reconciler keeps this, changes of capacity wake them."""
        self._objects: list[Informer[dict[str, Any]]] = []
        self._deployments: list[Informer[DeploymentFacts]] = []
        for namespace in namespaces or (None,):
            inside = f"/namespaces/{namespace}" if namespace else ""
            objects = f"/apis/{GROUP}/{VERSION}{inside}/{PLURAL}"
            deployments = f"/apis/apps/v1{inside}/deployments"
            self._objects.append(Informer(api=api, path=objects, slim=slim_object, on_change=self._object_changed))
            self._deployments.append(
                Informer(
                    api=api, path=deployments, slim=slim_deployment, on_change=self._deployment_changed, selector=MANAGED_SELECTOR
                )
            )
        # Pods of every namespace, whatever is watched: they share the nodes' memory with ours.
        self._pods = Informer(api=api, path="/api/v1/pods", slim=slim_pod, on_change=self._pod_changed)
        self._nodes = Informer(api=api, path="/api/v1/nodes", slim=slim_node, on_change=self._node_changed)

    @property
    def _informers(self) -> list[Informer[Any]]:
        return [self._nodes, self._pods, *self._deployments, *self._objects]

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"inform {informer.path}")

    async def wait_synced(self) -> None:
        """Until every collection was listed once: before, a missing child proves nothing."""
        for informer in self._informers:
            await informer.synced.wait()

    @property
    def synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self._informers)

    @property
    def idle_seconds(self) -> float:
        """The longest time in which a watch has neither heard from the server nor tried to reach it."""
        return max(informer.idle_seconds for informer in self._informers)

    def object(self, key: str) -> dict[str, Any] | None:
        return _first(self._objects, key)

    @property
    def num_objects(self) -> int:
        return sum(len(informer.values) for informer in self._objects)

    def object_keys(self) -> Iterator[str]:
        for informer in self._objects:
            yield from informer.values

    def deployment(self, key: str) -> DeploymentFacts | None:
        return _first(self._deployments, key)

    def pods(self, key: str) -> Mapping[str, PodFacts]:
        """Pods that carry the label of this object, by their own key."""
        return self._pods_of.get(key, {})

    def owners(self) -> Iterator[str]:
        """Keys that have at least one pod."""
        yield from self._pods_of

    def node_facts(self) -> list[NodeFacts]:
        return list(self._nodes.values.values())

    def pod_requests(self) -> list[PodRequest]:
        return [pod.request for pod in self._pods.values.values() if pod.request is not None]

    def _object_changed(self, key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if new is None:
            self.unplaced.discard(key)
            self._queue.forget(key)
            self._on_gone(key)
            return
        # Our own status writes come back as events: they change nothing that is reconciled from.
        if (
            old is None
            or old["metadata"].get("generation") != new["metadata"].get("generation")
            or old["metadata"]["uid"] != new["metadata"]["uid"]
        ):
            self._queue.add(key, urgent=True)
        elif old["metadata"] != new["metadata"]:
            self._queue.add(key)

    def _deployment_changed(self, key: str, _old: DeploymentFacts | None, _new: DeploymentFacts | None) -> None:
        self._queue.add_later(key, seconds=_CHILD_DELAY_SECONDS)

    def _pod_changed(self, key: str, old: PodFacts | None, new: PodFacts | None) -> None:
        if old is not None and old.owner and (new is None or new.owner != old.owner):
            pods = self._pods_of[old.owner]
            del pods[key]
            if not pods:
                del self._pods_of[old.owner]
            self._queue.add_later(old.owner, seconds=_CHILD_DELAY_SECONDS)
        if new is not None and new.owner:
            self._pods_of.setdefault(new.owner, {})[key] = new
            self._queue.add_later(new.owner, seconds=_CHILD_DELAY_SECONDS)
        if (old.request if old else None) != (new.request if new else None):
            self._capacity_changed()

    def _node_changed(self, _key: str, _old: NodeFacts | None, _new: NodeFacts | None) -> None:
        self._capacity_changed()

    def _capacity_changed(self) -> None:
        for key in self.unplaced:
            self._queue.add_later(key, seconds=_CAPACITY_DELAY_SECONDS)


def _first(informers: list[Informer[T]], key: str) -> T | None:
    """The value of `key` in whichever namespace's informer has it."""
    return next((value for informer in informers if (value := informer.values.get(key)) is not None), None)
