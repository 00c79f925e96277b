"""The work queue: order, exclusiveness, coalescing, back-off."""

import asyncio

import pytest

from hisparse_operator.cluster.queue import WorkQueue

pytestmark = pytest.mark.anyio


async def take(queue: WorkQueue) -> str:
    async with asyncio.timeout(2):
        return await queue.take()


async def is_empty(queue: WorkQueue, *, seconds: float = 0.05) -> bool:
    try:
        async with asyncio.timeout(seconds):
            key = await queue.take()
    except TimeoutError:
        return True
    pytest.fail(f"{key} came up")


@pytest.fixture
def _no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)


async def test_a_key_that_is_added_twice_comes_up_once() -> None:
    queue = WorkQueue()
    queue.add("a")
    queue.add("a")
    queue.add("a", urgent=True)
    assert len(queue) == 1
    assert await take(queue) == "a"
    assert await is_empty(queue)


async def test_keys_come_up_in_the_order_of_their_arrival() -> None:
    queue = WorkQueue()
    for key in ("c", "a", "b"):
        queue.add(key)
    assert [await take(queue) for _ in range(3)] == ["c", "a", "b"]


async def test_an_urgent_key_overtakes_and_so_does_one_that_becomes_urgent() -> None:
    queue = WorkQueue()
    for key in ("a", "b", "c"):
        queue.add(key)
    queue.add("new", urgent=True)
    queue.add("b", urgent=True)
    assert [await take(queue) for _ in range(4)] == ["new", "b", "a", "c"]


async def test_a_key_is_never_worked_on_twice_at_the_same_time() -> None:
    queue = WorkQueue()
    working: set[str] = set()
    num_runs = 0

    async def worker() -> None:
        nonlocal num_runs
        while True:
            key = await queue.take()
            assert key not in working
            working.add(key)
            await asyncio.sleep(0.001)
            working.remove(key)
            num_runs += 1
            queue.done(key)

    workers = [asyncio.create_task(worker()) for _ in range(4)]
    for round_number in range(20):
        for key in ("a", "b", "c"):
            queue.add(key, urgent=round_number % 3 == 0)
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    for task in workers:
        task.cancel()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results), results
    assert num_runs >= 6
    assert len(queue) == 0


async def test_a_key_that_is_woken_while_it_is_worked_on_runs_once_more() -> None:
    queue = WorkQueue()
    queue.add("a")
    await take(queue)
    queue.add("a")
    queue.add("a", urgent=True)
    queue.add("other")
    assert await take(queue) == "other"
    assert await is_empty(queue)
    queue.done("a")
    assert await take(queue) == "a"
    queue.done("a")
    assert await is_empty(queue)


@pytest.mark.usefixtures("_no_jitter")
async def test_failures_come_back_after_a_growing_bounded_delay_that_success_resets() -> None:
    queue = WorkQueue()
    assert [queue.done("a", failed=True) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert queue.done("a") == 0
    assert queue.done("a", failed=True) == 0.5
    queue.forget("a")


async def test_the_delay_is_spread_so_that_many_failures_do_not_come_back_together() -> None:
    queue = WorkQueue()
    delays = {queue.done(f"{number}", failed=True) for number in range(20)}
    assert len(delays) > 10
    assert all(0.375 <= delay <= 0.625 for delay in delays)
    for number in range(20):
        queue.forget(f"{number}")


async def test_a_failed_key_comes_back_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hisparse_operator.cluster.queue._FIRST_RETRY_SECONDS", 0.02)
    queue = WorkQueue()
    queue.add("a")
    await take(queue)
    queue.done("a", failed=True)
    assert len(queue) == 0
    assert await take(queue) == "a"


async def test_a_change_overtakes_the_back_off() -> None:
    queue = WorkQueue()
    queue.done("a", failed=True)
    queue.add("a", urgent=True)
    assert await take(queue) == "a"
    queue.done("a")
    assert await is_empty(queue, seconds=0.7), "the timer of the back-off must be gone, too"


async def test_the_earlier_of_two_delays_counts() -> None:
    queue = WorkQueue()
    queue.add_later("patient", seconds=30)
    queue.add_later("patient", seconds=0.01)
    queue.add_later("eager", seconds=0.02)
    queue.add_later("eager", seconds=30)
    assert await take(queue) == "patient"
    assert await take(queue) == "eager"


async def test_delayed_wakes_share_one_run() -> None:
    queue = WorkQueue()
    for _ in range(5):
        queue.add_later("a", seconds=0.01)
    assert await take(queue) == "a"
    queue.done("a")
    assert await is_empty(queue)


async def test_a_forgotten_key_does_not_come_back() -> None:
    queue = WorkQueue()
    queue.add_later("a", seconds=0.02)
    queue.forget("a")
    assert await is_empty(queue, seconds=0.08)


@pytest.mark.usefixtures("_no_jitter")
async def test_the_failures_of_a_forgotten_key_are_forgotten() -> None:
    queue = WorkQueue()
    queue.done("a", failed=True)
    queue.done("a", failed=True)
    queue.forget("a")
    assert queue.done("a", failed=True) == 0.5
    queue.forget("a")
