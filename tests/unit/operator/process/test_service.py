"""The operator's tasks together, against a server on localhost: probes, workers, failures, kopf around them."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web
from kubernetes.aio import client

from hisparse_operator import metrics
from hisparse_operator.cluster.api import ApiError
from hisparse_operator.handlers import kopf_settings, registry
from hisparse_operator.http_server import serve
from hisparse_operator.reconcile import Reconciler
from hisparse_operator.service import Service
from hisparse_operator.settings import Settings
from tests.unit.operator.objects import IMAGES, body
from tests.unit.operator.waiting import running, until

pytestmark = pytest.mark.anyio


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def settings(**fields: Any) -> Settings:
    wanted: dict[str, Any] = {
        "images": IMAGES,
        "watch_namespaces": (),
        "log_level": "INFO",
        "scrape_seconds": 5.0,
        "http_port": free_port(),
    }
    return Settings(**{**wanted, **fields})


class Cluster:
    """Answers lists with what it has, or is away; watches hang."""

    def __init__(self) -> None:
        self.items: dict[str, list[dict[str, Any]]] = {}
        self.is_away = False
        self.host = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            await asyncio.sleep(60)
        if self.is_away:
            return web.Response(status=503, text="away")
        items = self.items.get(request.path.rsplit("/", maxsplit=1)[-1], [])
        # versions and groups: kopf looks at what there is, although it watches nothing
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items, "versions": [], "groups": []})


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    served = Cluster()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()


async def ask(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()
        except aiohttp.ClientConnectionError:
            return 0, ""


async def test_probes_say_what_is_wrong_and_metrics_are_those_of_the_operator() -> None:
    port, state = free_port(), {"live": True, "ready": False}
    async with running(serve(port=port, is_live=lambda: state["live"], is_ready=lambda: state["ready"])):
        await until(lambda: listens(port))
        assert await ask(port, "/healthz") == (200, "ok")
        assert await ask(port, "/readyz") == (503, "caches are not filled yet")
        state.update(live=False, ready=True)
        assert await ask(port, "/healthz") == (503, "a watch is stuck")
        assert await ask(port, "/readyz") == (200, "ok")
        status, text = await ask(port, "/metrics")
        assert status == 200
        assert "hisparse_operator_queue_length" in text
    assert (await ask(port, "/healthz"))[0] == 0, "the server ends with its task"


async def test_the_operator_is_ready_once_its_caches_are_filled_and_then_reconciles(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen: list[str] = []

    async def reconcile(_: Reconciler, key: str) -> None:
        seen.append(key)

    monkeypatch.setattr(Reconciler, "reconcile", reconcile)
    async with cluster() as api:
        api.is_away = True
        api.items["hisparsedeployments"] = [body()]
        chosen = settings()
        service = Service(settings=chosen, configuration=client.Configuration(host=api.host))
        async with running(service.run()):
            await until(lambda: "listing again" in caplog.text)
            assert await ask(chosen.http_port, "/readyz") == (503, "caches are not filled yet")
            assert (await ask(chosen.http_port, "/healthz"))[0] == 200, "a server that is away is no reason to restart"
            api.is_away = False
            await until(lambda: seen)
            assert (await ask(chosen.http_port, "/readyz"))[0] == 200
    assert seen == ["shop/agents"]
    assert "1 objects" in caplog.text
    assert metrics.REGISTRY.get_sample_value("hisparse_operator_objects") == 1


@pytest.mark.parametrize(
    ("failure", "level"),
    [(ApiError(500, "InternalError", "schema"), "WARNING"), (TimeoutError(), "WARNING"), (KeyError("defect"), "ERROR")],
    ids=["refusal", "timeout", "defect"],
)
async def test_a_reconciliation_that_fails_comes_again_and_does_not_end_the_others(
    failure: Exception, level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hisparse_operator.cluster.queue._FIRST_RETRY_SECONDS", 0.01)
    seen: list[str] = []

    async def reconcile(_: Reconciler, key: str) -> None:
        seen.append(key)
        if key == "shop/broken":
            raise failure

    monkeypatch.setattr(Reconciler, "reconcile", reconcile)
    async with cluster() as api:
        api.items["hisparsedeployments"] = [body(name="broken"), body(name="fine")]
        service = Service(settings=settings(), configuration=client.Configuration(host=api.host))
        async with running(service.run()):
            await until(lambda: seen.count("shop/broken") >= 3)
    assert seen.count("shop/fine") == 1
    assert level in {record.levelname for record in caplog.records}
    assert "reconciling shop/broken" in caplog.text


async def test_the_service_ends_when_one_of_its_tasks_fails() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        service = Service(
            settings=settings(http_port=taken.getsockname()[1]), configuration=client.Configuration(host="http://127.0.0.1:1")
        )
        with pytest.RaisesGroup(OSError):
            await service.run()


async def test_kopf_runs_the_service_and_stops_with_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def fails(_: Service) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Service, "run", fails)
    monkeypatch.setenv("USER", "hisparse-operator")
    stop = asyncio.Event()
    async with cluster() as api:
        configuration = client.Configuration(host=api.host)
        async with asyncio.timeout(20):
            await kopf.operator(
                registry=registry(settings=settings(), configuration=configuration, stop=stop),
                settings=kopf_settings(),
                standalone=True,
                clusterwide=True,
                stop_flag=stop,
            )
    assert stop.is_set()
    assert "the operator's own tasks ended: out of luck" in caplog.text
