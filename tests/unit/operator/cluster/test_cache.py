"""Whom a change in the cluster wakes. The informers are told of changes directly, but for the first list, which is over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from hisparse_operator.cluster.api import Api
from hisparse_operator.cluster.cache import Cache
from hisparse_operator.cluster.queue import WorkQueue
from hisparse_operator.planning import PodRequest
from tests.unit.operator.cluster.api_server import api_server
from tests.unit.operator.objects import GIB, body
from tests.unit.operator.waiting import running, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hisparse_operator.cluster.cache._CHILD_DELAY_SECONDS", 0.0)
    monkeypatch.setattr("hisparse_operator.cluster.cache._CAPACITY_DELAY_SECONDS", 0.0)


class Watched:
    """A cache whose informers are told what happens, one event at a time."""

    def __init__(self, *, namespaces: tuple[str, ...] = ()) -> None:
        self.queue = RecordingQueue()
        self.gone: list[str] = []
        self.cache = Cache(api=NO_API, queue=self.queue, namespaces=namespaces, on_gone=self.gone.append)

    def tell(self, path: str, *items: dict[str, Any]) -> None:
        informer = self._informer(path)
        for item in items:
            informer._put(item)

    def tell_gone(self, path: str, key: str) -> None:
        self._informer(path)._drop(key)

    def woken(self) -> list[tuple[str, str]]:
        """Whom the events woke since the last look, and how."""
        seen, self.queue.seen = self.queue.seen, []
        return seen

    def _informer(self, path: str) -> Any:
        return next(informer for informer in self.cache._informers if informer.path == path)


class RecordingQueue(WorkQueue):
    """A work queue that remembers who was added."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def add(self, key: str, *, urgent: bool = False) -> None:
        self.seen.append((key, "urgent" if urgent else "now"))
        super().add(key, urgent=urgent)

    def add_later(self, key: str, *, seconds: float) -> None:
        self.seen.append((key, "later"))
        super().add_later(key, seconds=seconds)


NO_API: Any = None  # nothing is asked of it while informers are told directly
OBJECTS = "/apis/hisparse.dev/v1alpha1/hisparsedeployments"
DEPLOYMENTS = "/apis/apps/v1/deployments"
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"


def pod(
    name: str, *, of: str | None = "agents", node: str | None = "big", memory: str = "1Gi", ready: str = "True"
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": {"hisparse.dev/deployment": of} if of else {}},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"memory": memory}}}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def node(*, memory: str = "8Gi", beat: int = 0) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": beat}
    return {"metadata": {"name": "big"}, "status": {"allocatable": {"memory": memory}, "conditions": [ready]}}


async def test_a_new_object_and_a_new_generation_are_urgent() -> None:
    watched = Watched()
    watched.tell(OBJECTS, body())
    assert watched.woken() == [("shop/agents", "urgent")]
    watched.tell(OBJECTS, body(generation=2, replicas=2))
    assert watched.woken() == [("shop/agents", "urgent")]
    found = watched.cache.object("shop/agents")
    assert found is not None
    assert found["spec"]["replicas"] == 2


async def test_an_object_of_the_same_name_is_another_one() -> None:
    watched = Watched()
    watched.tell(OBJECTS, body(), body(uid="uid-2"))
    assert watched.woken() == [("shop/agents", "urgent")] * 2


async def test_the_operators_own_status_write_wakes_nobody() -> None:
    watched = Watched()
    watched.tell(OBJECTS, body())
    watched.woken()
    watched.tell(OBJECTS, body(status={"replicas": 1}, metadata={"resourceVersion": "9", "managedFields": [{"manager": "x"}]}))
    assert watched.woken() == []
    found = watched.cache.object("shop/agents")
    assert found is not None
    assert found["status"] == {"replicas": 1}, "the next reconciliation must compare with what was written"


async def test_a_changed_label_is_looked_at_without_hurry() -> None:
    watched = Watched()
    watched.tell(OBJECTS, body(), body(metadata={"labels": {"team": "red"}}))
    assert watched.woken() == [("shop/agents", "urgent"), ("shop/agents", "now")]


async def test_an_object_that_is_gone_is_forgotten() -> None:
    watched = Watched()
    watched.tell(OBJECTS, body())
    watched.cache.unplaced.add("shop/agents")
    watched.queue.add_later("shop/agents", seconds=0.01)
    watched.woken()
    watched.tell_gone(OBJECTS, "shop/agents")
    assert (watched.woken(), watched.gone, watched.cache.unplaced) == ([], ["shop/agents"], set())
    assert watched.cache.object("shop/agents") is None


async def test_a_change_of_the_deployment_wakes_its_object() -> None:
    watched = Watched()
    deployment: dict[str, Any] = {"metadata": {"name": "agents", "namespace": "shop", "generation": 1}}
    watched.tell(DEPLOYMENTS, deployment)
    watched.tell(DEPLOYMENTS, {**deployment, "status": {"readyReplicas": 1}})
    watched.tell(DEPLOYMENTS, {**deployment, "status": {"readyReplicas": 1, "conditions": [{"type": "Progressing"}]}})
    watched.tell_gone(DEPLOYMENTS, "shop/agents")
    assert watched.woken() == [("shop/agents", "later")] * 3


async def test_a_pod_wakes_the_object_whose_label_it_has_and_a_strangers_pod_nobody() -> None:
    watched = Watched()
    watched.tell(PODS, pod("agents-1"), pod("database", of=None))
    assert watched.woken() == [("shop/agents", "later")]
    assert list(watched.cache.pods("shop/agents")) == ["shop/agents-1"]
    watched.tell(PODS, pod("agents-1", ready="False"), pod("agents-1", ready="False"))
    assert watched.woken() == [("shop/agents", "later")]
    watched.tell_gone(PODS, "shop/agents-1")
    assert watched.woken() == [("shop/agents", "later")]
    assert (dict(watched.cache.pods("shop/agents")), list(watched.cache.owners())) == ({}, [])


async def test_a_pod_that_changes_its_label_wakes_both_objects() -> None:
    watched = Watched()
    watched.tell(PODS, pod("one"), pod("two"))
    watched.woken()
    watched.tell(PODS, pod("one", of="other"))
    assert sorted(watched.woken()) == [("shop/agents", "later"), ("shop/other", "later")]
    assert list(watched.cache.pods("shop/agents")) == ["shop/two"]
    assert list(watched.cache.pods("shop/other")) == ["shop/one"]


async def test_a_heartbeat_of_a_node_wakes_nobody() -> None:
    watched = Watched()
    watched.tell(NODES, node(beat=1))
    watched.cache.unplaced.add("shop/waits")
    watched.tell(NODES, node(beat=2))
    assert watched.woken() == []


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda watched: watched.tell(NODES, node(memory="16Gi")), id="a node has more memory"),
        pytest.param(lambda watched: watched.tell_gone(NODES, "big"), id="a node is gone"),
        pytest.param(lambda watched: watched.tell_gone(PODS, "shop/database"), id="a stranger's pod is gone"),
        pytest.param(lambda watched: watched.tell(PODS, pod("database", of=None, memory="2Gi")), id="a stranger's pod grows"),
        pytest.param(lambda watched: watched.tell(PODS, pod("new", of=None)), id="a stranger's pod comes"),
    ],
)
async def test_a_change_of_capacity_wakes_only_objects_that_wait_for_it(happens: Callable[[Watched], None]) -> None:
    watched = Watched()
    watched.tell(OBJECTS, body(name="placed"), body(name="waits"))
    watched.tell(NODES, node())
    watched.tell(PODS, pod("database", of=None))
    watched.cache.unplaced.add("shop/waits")
    watched.woken()
    happens(watched)
    assert watched.woken() == [("shop/waits", "later")]


async def test_requests_of_all_placed_pods_are_what_planning_reads() -> None:
    watched = Watched()
    watched.tell(NODES, node())
    watched.tell(PODS, pod("agents-1"), pod("database", of=None, memory="3Gi"), pod("pending", node=None))
    assert watched.cache.pod_requests() == [PodRequest("big", GIB, 0, "shop/agents"), PodRequest("big", 3 * GIB, 0, None)]
    assert [facts.allocatable_memory_bytes for facts in watched.cache.node_facts()] == [8 * GIB]


async def test_watching_some_namespaces_lists_objects_there_but_pods_and_nodes_everywhere() -> None:
    watched = Watched(namespaces=("blue", "shop"))
    assert sorted(informer.path for informer in watched.cache._informers) == [
        "/api/v1/nodes",
        "/api/v1/pods",
        "/apis/apps/v1/namespaces/blue/deployments",
        "/apis/apps/v1/namespaces/shop/deployments",
        "/apis/hisparse.dev/v1alpha1/namespaces/blue/hisparsedeployments",
        "/apis/hisparse.dev/v1alpha1/namespaces/shop/hisparsedeployments",
    ]
    watched.tell("/apis/hisparse.dev/v1alpha1/namespaces/shop/hisparsedeployments", body())
    assert (watched.cache.num_objects, list(watched.cache.object_keys())) == (1, ["shop/agents"])
    assert watched.cache.object("shop/agents") is not None


@asynccontextmanager
async def empty_cluster() -> AsyncIterator[tuple[Api, Callable[[str], list[dict[str, str]]]]]:
    """A server whose collections are all empty, and what was asked of a path."""
    async with api_server() as (server, api):
        empty = {"metadata": {"resourceVersion": "100"}, "items": []}
        server.refusals.extend(web.json_response(empty) for _ in range(4))
        yield api, lambda path: [request.query for request in server.requests if request.path == path]


async def test_the_cache_is_synced_once_every_collection_was_listed() -> None:
    async with empty_cluster() as (api, asked):
        cache = Cache(api=api, queue=WorkQueue(), namespaces=(), on_gone=lambda _: None)
        assert not cache.synced
        async with running(cache.run()):
            async with asyncio.timeout(5):
                await cache.wait_synced()
            assert cache.synced
            assert cache.idle_seconds < 5
            await until(lambda: len(asked(DEPLOYMENTS)) == 2)
        selector = "app.kubernetes.io/managed-by=hisparse-operator,app.kubernetes.io/part-of=hisparse"
        assert [query["labelSelector"] for query in asked(DEPLOYMENTS)] == [selector, selector]
        assert "labelSelector" not in asked(PODS)[0]
