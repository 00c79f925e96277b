"""A cluster in memory for the reconciler: an Api that stores what is applied, and a cache that is told of it on demand."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from hisparse_operator.cluster.api import Api, ApiError
from hisparse_operator.cluster.cache import Cache
from hisparse_operator.cluster.queue import WorkQueue
from hisparse_operator.cluster.slim import slim_deployment, slim_object
from hisparse_operator.planning import NodeFacts
from hisparse_operator.reconcile import Reconciler, object_path
from hisparse_operator.telemetry import Sample
from tests.unit.operator.objects import IMAGES, node

DEPLOYMENT_PATH = "/apis/apps/v1/namespaces/shop/deployments/agents"
STATUS_PATH = f"{object_path('shop', 'agents')}/status"


class FakeApi(Api):
    """Stores applied objects by path, raises the generation when a spec differs, and remembers every call."""

    def __init__(self) -> None:  # no client: nothing leaves the process
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.refusals: dict[str, ApiError] = {}
        """Path -> what applying to it is refused with."""

    async def get(self, path: str) -> dict[str, Any] | None:
        self._count("GET", path)
        return copy.deepcopy(self.objects.get(path))

    async def apply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._count("APPLY", path)
        if path.endswith("/status"):
            stored = self.objects.get(path.removesuffix("/status"))
            if stored is None:
                raise ApiError(404, "NotFound", f"{path} not found")
            stored["status"] = as_json(body["status"])
            return copy.deepcopy(stored)
        before = self.objects.get(path, {})
        generation = before.get("metadata", {}).get("generation", 0) + (before.get("spec") != body.get("spec"))
        applied: dict[str, Any] = {**before, **as_json(body)}
        applied["metadata"]["generation"] = generation
        self.objects[path] = applied
        return copy.deepcopy(applied)

    def _count(self, verb: str, path: str) -> None:
        self.calls.append((verb, path))
        if verb == "APPLY" and path in self.refusals:
            raise self.refusals[path]


class FakeCluster:
    """One reconciler between a fake Api and a cache. Nothing reaches the cache until `sync`."""

    def __init__(self, *, nodes: tuple[NodeFacts, ...] = (node(),)) -> None:
        self.api = FakeApi()
        self.cache = Cache(api=self.api, queue=WorkQueue(), namespaces=(), on_gone=lambda _: None)
        self.samples: dict[str, Sample] = {}
        self.events: list[tuple[str, str, str]] = []
        self.set_nodes(*nodes)
        self.restart()

    def restart(self) -> None:
        """A new operator process: what the former one remembered is gone."""
        self.reconciler = Reconciler(
            api=self.api,
            cache=self.cache,
            images=IMAGES,
            sample=self.samples.get,
            stale_after_seconds=15.0,
            post=self._post,
        )

    def create(self, body: Mapping[str, Any]) -> None:
        """A person applies the object; it is on the server, and the cache has heard of it. Its status stays."""
        path = object_path(body["metadata"]["namespace"], body["metadata"]["name"])
        status = self.api.objects.get(path, {}).get("status")
        self.api.objects[path] = as_json({**body, **({"status": status} if status else {})})
        self.sync()

    def sync(self) -> None:
        """The cache hears of everything that is on the server."""
        path = object_path("shop", "agents")
        self._store(
            "hisparsedeployments", slim_object(copy.deepcopy(self.api.objects[path])) if path in self.api.objects else None
        )
        deployed = self.api.objects.get(DEPLOYMENT_PATH)
        self._store("deployments", slim_deployment(deployed) if deployed else None)

    def roll_out(self, *, ready: int | None = None) -> None:
        """The Deployment's controller has done its work; the cache hears of it."""
        deployed = self.api.objects[DEPLOYMENT_PATH]
        replicas = deployed["spec"]["replicas"]
        deployed["status"] = {
            "observedGeneration": deployed["metadata"]["generation"],
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas if ready is None else ready,
        }
        self.sync()

    def set_nodes(self, *nodes: NodeFacts) -> None:
        self.cache._nodes._values.clear()
        self.cache._nodes._values.update({each.name: each for each in nodes})

    def set_pods(self, **pods: Any) -> None:
        """Pods of `shop/agents`, by name."""
        self.cache._pods._values.clear()
        self.cache._pods_of.clear()
        for name, facts in pods.items():
            self.cache._pods._values[f"shop/{name}"] = facts
            self.cache._pod_changed(f"shop/{name}", None, facts)

    async def reconcile(self) -> list[tuple[str, str]]:
        """One reconciliation; the calls that it made."""
        self.api.calls.clear()
        await self.reconciler.reconcile("shop/agents")
        return list(self.api.calls)

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.api.objects[object_path("shop", "agents")]["status"]
        return status

    def condition(self, condition_type: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in self.status["conditions"] if each["type"] == condition_type)
        return found

    def _store(self, kind: str, value: Any) -> None:
        values: dict[str, Any] = (
            self.cache._objects[0]._values if kind == "hisparsedeployments" else self.cache._deployments[0]._values
        )
        values.pop("shop/agents", None)
        if value is not None:
            values["shop/agents"] = value

    def _post(self, body: dict[str, Any], *, type: str, reason: str, message: str) -> None:  # noqa: A002 - the field's own name
        assert body["metadata"]["name"] == "agents"
        self.events.append((type, reason, message))


def as_json(value: Any) -> Any:
    """What is left of a value after it went over the wire."""
    return json.loads(json.dumps(value))
