"""/healthz, /readyz and /metrics of the operator itself."""

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from hisparse_operator.metrics import REGISTRY


async def serve(*, port: int, is_live: Callable[[], bool], is_ready: Callable[[], bool]) -> None:
    """Until cancelled."""

    async def healthz(_: web.Request) -> web.Response:
        return _verdict(is_live(), "a watch is stuck")

    async def readyz(_: web.Request) -> web.Response:
        return _verdict(is_ready(), "caches are not filled yet")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application(client_max_size=1024)
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        # All interfaces: the kubelet's probes and Prometheus come over the pod network.
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _verdict(good: bool, otherwise: str) -> web.Response:  # noqa: FBT001 - private, and the question is the argument
    return web.Response(text="ok") if good else web.Response(status=503, text=otherwise)
