"""The scraper against engines on localhost that answer well, badly, hugely or not at all."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from hisparse_operator.telemetry import ProgressReport, Scraper
from hisparse_operator.telemetry.scraper import Target, target
from tests.unit.operator.objects import report, report_values
from tests.unit.operator.waiting import running, until

pytestmark = pytest.mark.anyio

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hisparse_operator.telemetry.scraper._TIMEOUT_SECONDS", 0.25)


async def good(_: web.Request) -> web.Response:
    return web.json_response(report_values())


async def hangs(_: web.Request) -> web.Response:
    await asyncio.sleep(30)
    return web.Response()


class Engines:
    """One server on localhost in place of all pods: the path of a target says which of the handlers answers."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        self.handlers = handlers
        self.num_asked: dict[str, int] = dict.fromkeys(handlers, 0)
        self.headers: dict[str, str] = {}
        self.port = 0
        self.woken: list[str] = []

    def targets(self) -> list[Target]:
        return [
            Target(pod=name, owner=name.split("-", maxsplit=1)[0], url=f"http://127.0.0.1:{self.port}/{name}")
            for name in self.handlers
        ]

    def scraper(self, *, period_seconds: float = 0.02, refresh_seconds: float = 1000.0) -> Scraper:
        return Scraper(
            targets=self.targets, wake=self.woken.append, period_seconds=period_seconds, refresh_seconds=refresh_seconds
        )

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        self.num_asked[name] += 1
        self.headers = dict(request.headers)
        return await self.handlers[name](request)


@asynccontextmanager
async def engines(**handlers: Handler) -> AsyncIterator[Engines]:
    served = Engines({name.replace("_", "-"): handler for name, handler in handlers.items()})
    app = web.Application()
    app.router.add_get("/{name}", served.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.port = runner.addresses[0][1]
    try:
        yield served
    finally:
        await runner.cleanup()


async def error_of(handler: Handler) -> str:
    """Why there is no report of a pod that answers like this."""
    async with engines(a_1=handler) as served:
        scraper = served.scraper()
        async with running(scraper.run()):
            await until(lambda: "a-1" in scraper.samples)
        sample = scraper.samples["a-1"]
    assert sample.report is None
    return sample.error


def test_the_address_of_a_pod_may_be_of_either_family() -> None:
    ready = target(pod="p", owner="o", address="10.0.0.7", port=8000, is_ready=True)
    assert ready.url == "http://10.0.0.7:8000/hisparse/residency"
    starting = target(pod="p", owner="o", address="fd00::7", port=8001, is_ready=False)
    assert starting.url == "http://[fd00::7]:8001/hisparse/progress"


async def test_a_pod_that_starts_is_asked_how_far_it_is_and_wakes_its_owner_with_every_tenth() -> None:
    pinned_bytes = 0

    async def pins(_: web.Request) -> web.Response:
        return web.json_response({"stage": "pinning", "pinned_bytes": pinned_bytes, "planned_pinned_bytes": 1000, "more": 1})

    async with engines(a_1=pins) as served:
        targets = [replace(one, is_ready=False) for one in served.targets()]
        scraper = Scraper(targets=lambda: targets, wake=served.woken.append, period_seconds=0.02, refresh_seconds=1000.0)
        async with running(scraper.run()):
            await until(lambda: scraper.samples)
            sample = scraper.samples["a-1"]
            assert (sample.report, sample.error) == (None, "")
            assert sample.progress == ProgressReport(stage="pinning", pinned_bytes=0, planned_pinned_bytes=1000)
            num_woken, pinned_bytes = len(served.woken), 99
            num_asked = served.num_asked["a-1"]
            await until(lambda: served.num_asked["a-1"] > num_asked + 2)
            assert len(served.woken) == num_woken
            pinned_bytes = 100
            await until(lambda: len(served.woken) == num_woken + 1)
            assert scraper.samples["a-1"].progress.pinned_percent == 10  # type: ignore[union-attr]  # asked for above


async def test_a_good_answer_becomes_a_sample() -> None:
    async with engines(a_1=good) as served:
        scraper = served.scraper()
        async with running(scraper.run()):
            await until(lambda: scraper.samples)
        assert (scraper.samples["a-1"].report, scraper.samples["a-1"].error) == (report(), "")
        assert served.headers["Accept-Encoding"] == "identity"


async def test_a_status_of_500_is_an_error() -> None:
    async def broken(_: web.Request) -> web.Response:
        return web.json_response(report_values(), status=500)

    assert await error_of(broken) == "ScrapeError: GET /hisparse/residency answered 500"


async def test_a_redirect_is_not_followed() -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/secret")

    assert await error_of(elsewhere) == "ScrapeError: GET /hisparse/residency answered 302"


async def test_a_pod_that_hangs_times_out() -> None:
    assert await error_of(hangs) == "ReadTimeout"


async def test_a_pod_that_answers_in_drops_times_out_as_a_whole() -> None:
    async def drips(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    assert await error_of(drips) == "TimeoutError"


async def test_nobody_listens() -> None:
    scraper = Scraper(
        targets=lambda: [Target("a-1", "a", "http://127.0.0.1:1/x")], wake=lambda _: None, period_seconds=1, refresh_seconds=1
    )
    async with running(scraper.run()):
        await until(lambda: scraper.samples)
    assert scraper.samples["a-1"].error.startswith("ConnectError")


async def test_an_answer_is_read_only_up_to_the_size_limit() -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 16384)
            sent += 16384

    assert await error_of(endless) == "ScrapeError: GET /hisparse/residency answered more than 65,536 bytes"
    assert sent < 32 << 20, "what the sockets hold, not what the pod would like to send"


async def test_a_compressed_bomb_is_not_inflated() -> None:
    bomb = gzip.compress(json.dumps(report_values()).encode() + b" " * (50 << 20))
    assert len(bomb) < 65536

    async def packed(_: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    assert "Invalid JSON" in await error_of(packed)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("<html>", "Invalid JSON"),
        ("[" * 60_000, "Invalid JSON"),
        ("{}", "engine: Field required (7 such errors)"),
        (
            json.dumps({**report_values(), "hot": {"hits": -1, "misses": 0}}),
            "hot.hits: Input should be greater than or equal to 0",
        ),
    ],
    ids=["html", "deep", "empty", "negative"],
)
async def test_what_is_no_report_is_told_by_its_first_fault(content: str, part: str) -> None:
    async def wrong(_: web.Request) -> web.Response:
        return web.Response(text=content)

    error = await error_of(wrong)
    assert part in error
    assert len(error) <= 200


async def test_a_former_report_is_kept_with_its_time_while_the_pod_fails() -> None:
    async with engines(a_1=good) as served:
        scraper = served.scraper()
        async with running(scraper.run()):
            await until(lambda: scraper.samples)
            before = scraper.samples["a-1"]
            served.handlers["a-1"] = hangs
            await until(lambda: scraper.samples["a-1"].error)
            after = scraper.samples["a-1"]
    assert after.report == before.report == report()
    assert after.observed_at >= before.observed_at
    assert after.error == "ReadTimeout"


async def test_at27_pods_that_hang_do_not_delay_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hisparse_operator.telemetry.scraper._TIMEOUT_SECONDS", 10.0)
    hostile: dict[str, Handler] = {f"bad_{number}": hangs for number in range(12)}
    async with engines(**hostile, good_1=good) as served:
        scraper = served.scraper()
        async with running(scraper.run()):
            await until(lambda: served.num_asked["good-1"] >= 5)
        assert all(asked <= 1 for name, asked in served.num_asked.items() if name != "good-1")


async def test_at27_pods_that_failed_before_share_a_narrow_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hisparse_operator.telemetry.scraper._TIMEOUT_SECONDS", 10.0)
    answering = asyncio.Event()

    async def fails_then_hangs(request: web.Request) -> web.Response:
        return web.Response(status=500) if not answering.is_set() else await hangs(request)

    hostile: dict[str, Handler] = {f"bad_{number}": fails_then_hangs for number in range(40)}
    async with engines(**hostile, good_1=good) as served:
        scraper = served.scraper()
        async with running(scraper.run()):
            await until(lambda: len(scraper.samples) == 41)
            answering.set()
            before = served.num_asked["good-1"]
            await until(lambda: served.num_asked["good-1"] >= before + 5)
            hanging = len(scraper._in_flight)
        assert hanging >= 20, "most of the hostile pods wait for one of the few slots"


async def test_the_owner_is_woken_by_changes_only() -> None:
    values: dict[str, Any] = report_values()

    async def answer(_: web.Request) -> web.Response:
        values["engine"]["uptime_seconds"] += 1.0
        return web.json_response(values)

    async with engines(a_1=answer) as served:
        scraper = served.scraper()
        async with running(scraper.run()):
            await until(lambda: served.num_asked["a-1"] >= 5)
            assert served.woken == ["a"], "the first answer is news, the same again is not"
            values["requests"]["waiting"] = 7
            await until(lambda: len(served.woken) == 2)
            served.handlers["a-1"] = hangs
            await until(lambda: len(served.woken) == 3)
            asked = served.num_asked["a-1"]
            await until(lambda: served.num_asked["a-1"] >= asked + 2)
            assert len(served.woken) == 3, "the same failure again is no news"
            served.handlers["a-1"] = answer
            await until(lambda: len(served.woken) == 4)
    assert set(served.woken) == {"a"}


async def test_the_owner_is_woken_again_when_its_time_stamp_is_due() -> None:
    async with engines(a_1=good, a_2=good) as served, running(served.scraper(refresh_seconds=0.1).run()):
        await until(lambda: len(served.woken) >= 5)


async def test_samples_of_pods_that_are_gone_are_dropped() -> None:
    async with engines(a_1=good, b_1=good) as served:
        scraper = served.scraper()
        async with running(scraper.run()):
            await until(lambda: len(scraper.samples) == 2)
            del served.handlers["b-1"]
            await until(lambda: set(scraper.samples) == {"a-1"})


def test_a_sample_speaks_of_the_past_after_three_periods() -> None:
    assert Engines({}).scraper(period_seconds=5).stale_after_seconds == 15
