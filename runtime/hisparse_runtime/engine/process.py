"""The life of a serving process: listen, serve, drain on SIGTERM, and an exit code that tells how it went."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from hisparse_runtime.capacity import CapacityError
from hisparse_runtime.engine.build import EngineOptions, build_engine
from hisparse_runtime.engine.memory import PoolMemoryError
from hisparse_runtime.engine.model_config import load_model_config
from hisparse_runtime.engine.server import create_app
from hisparse_runtime.geometry import ModelConfigError

_POLL_SECONDS = 0.05
# For the answers of requests that were cut off; all others are sent by then.
_CLOSE_SECONDS = 5


class StartError(RuntimeError):
    """The server cannot start; the message is for the person who started it."""


class EngineFailedError(RuntimeError):
    """The engine failed while serving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    model_config: Path
    model_name: str
    host: str
    port: int
    shutdown_timeout_seconds: float
    engine: EngineOptions


class _Server(uvicorn.Server):
    """uvicorn closes its sockets at the first SIGTERM; here they answer 503 while the last requests finish."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(options: ServeOptions) -> None:
    """Returns after a clean shutdown. Raises StartError before the first request is taken, EngineFailedError after."""
    asyncio.run(_serve(options))


async def _serve(options: ServeOptions) -> None:
    home = asyncio.get_running_loop()
    wake = asyncio.Event()
    try:
        config = load_model_config(options.model_config)
        engine = build_engine(config, options.engine, on_failure=lambda: home.call_soon_threadsafe(wake.set))
    except (ModelConfigError, CapacityError, PoolMemoryError) as error:
        raise StartError(str(error)) from error
    listener = _listen(options.host, options.port)
    app = create_app(engine=engine, config=config, model_name=options.model_name)
    server = _Server(
        uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_CLOSE_SECONDS, lifespan="off")
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        home.add_signal_handler(number, wake.set)
    engine.start()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    waking = asyncio.create_task(wake.wait())
    await asyncio.wait((serving, waking), return_when=asyncio.FIRST_COMPLETED)
    waking.cancel()
    engine.drain()
    deadline = home.time() + options.shutdown_timeout_seconds
    while engine.num_open and engine.failure is None and home.time() < deadline:  # noqa: ASYNC110 - the engine is a thread
        await asyncio.sleep(_POLL_SECONDS)
    await asyncio.to_thread(engine.stop)
    server.should_exit = True
    await serving
    if engine.failure is not None:
        raise EngineFailedError(f"the engine failed: {engine.failure}")


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024)
    except OSError as error:
        raise StartError(f"--host {host} --port {port}: {error.strerror or error}") from error
