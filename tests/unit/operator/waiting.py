"""Waiting for what another task does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


async def until(happened: Callable[[], object], *, seconds: float = 5.0) -> None:
    """Until it happened; an AssertionError after `seconds`. The limit is for a broken test, no behaviour is timed by it."""
    try:
        async with asyncio.timeout(seconds):
            while not happened():  # noqa: ASYNC110 - what is waited for is seen in the objects under test, which tell nobody
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"did not happen within {seconds} s") from None


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Runs `work` beside the block and cancels it at the end; a failure of it is raised there."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
