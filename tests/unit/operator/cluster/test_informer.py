"""The informer against a server on localhost that pages, watches, forgets, refuses and goes away."""

import logging
from typing import Any

import pytest

from hisparse_operator.cluster.api import Api
from hisparse_operator.cluster.informer import Informer, object_key
from tests.unit.operator.cluster.api_server import PATH, api_server, refusal
from tests.unit.operator.waiting import running, until

pytestmark = pytest.mark.anyio

Change = tuple[str, int | None, int | None]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hisparse_operator.cluster.informer._FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("hisparse_operator.cluster.informer._LAST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("hisparse_operator.cluster.informer._RESUME_SECONDS", 0.01)


def informer_of(api: Api, changes: list[Change]) -> Informer[int]:
    """Keeps the size of each widget, and nothing of those that are hidden."""

    def size(item: dict[str, Any]) -> int | None:
        return None if item.get("hidden") else int(item["size"])

    return Informer(api=api, path=PATH, slim=size, on_change=lambda *change: changes.append(change))


def test_keys_are_namespace_and_name_or_the_name_alone() -> None:
    assert object_key({"metadata": {"namespace": "shop", "name": "a"}}) == "shop/a"
    assert object_key({"metadata": {"name": "node-1"}}) == "node-1"


async def test_a_list_of_several_pages_is_synced_as_a_whole() -> None:
    changes: list[Change] = []
    async with api_server() as (server, api):
        server.page_size = 2
        for size, name in enumerate("abcde"):
            server.put(name, size=size)
        informer = informer_of(api, changes)
        assert not informer.synced.is_set()
        async with running(informer.run()):
            await until(informer.synced.is_set)
            assert dict(informer.values) == {"shop/a": 0, "shop/b": 1, "shop/c": 2, "shop/d": 3, "shop/e": 4}
            assert server.num_lists == 3
    assert changes == [(f"shop/{name}", None, size) for size, name in enumerate("abcde")]


async def test_changes_are_told_with_old_and_new_value_and_equal_values_are_not_told() -> None:
    changes: list[Change] = []
    async with api_server() as (server, api):
        server.put("a", size=1)
        informer = informer_of(api, changes)
        async with running(informer.run()):
            await until(lambda: server.watches)
            changes.clear()
            server.put("b", size=5)
            server.put("a", size=1, color="red")
            server.put("a", size=2)
            server.delete("b")
            await until(lambda: len(changes) == 3)
            assert dict(informer.values) == {"shop/a": 2}
    assert changes == [("shop/b", None, 5), ("shop/a", 1, 2), ("shop/b", 5, None)]


async def test_what_is_slimmed_to_none_is_left_out() -> None:
    changes: list[Change] = []
    async with api_server() as (server, api):
        server.put("a", size=1, hidden=True)
        server.put("b", size=2)
        informer = informer_of(api, changes)
        async with running(informer.run()):
            await until(lambda: server.watches)
            server.put("b", size=2, hidden=True)
            await until(lambda: not informer.values)
    assert changes == [("shop/b", None, 2), ("shop/b", 2, None)]


async def test_a_stream_that_ends_is_resumed_at_the_last_version_also_of_a_bookmark() -> None:
    changes: list[Change] = []
    async with api_server() as (server, api):
        server.put("a", size=1)
        async with running(informer_of(api, changes).run()):
            await until(lambda: len(server.watches) == 1)
            server.put("b", size=2)
            server.bookmark()
            server.end_streams()
            await until(lambda: len(server.watches) == 2)
            server.put("c", size=3)
            await until(lambda: len(changes) == 3)
            assert server.num_lists == 1
        assert [request.query["resourceVersion"] for request in server.watches] == ["101", "103"]


async def test_a_version_that_is_too_old_leads_to_a_new_list_that_sweeps_what_is_gone() -> None:
    changes: list[Change] = []
    async with api_server() as (server, api):
        server.put("a", size=1)
        server.put("b", size=2)
        informer = informer_of(api, changes)
        async with running(informer.run()):
            await until(lambda: server.watches)
            changes.clear()
            server.expire_streams()
            await until(lambda: server.num_lists == 2)
            server.put("b", size=3)
            await until(lambda: changes)
    assert changes == [("shop/b", 2, 3)]


async def test_a_deletion_that_happened_while_the_watch_was_down_is_told_by_the_next_list() -> None:
    changes: list[Change] = []
    async with api_server() as (server, api):
        server.put("gone", size=1)
        server.put("stays", size=2)
        informer = informer_of(api, changes)
        async with running(informer.run()):
            await until(lambda: server.watches)
            await server.stop()
            server.delete("gone")
            server.put("new", size=3)
            server.compact()
            changes.clear()
            await server.start()
            await until(lambda: len(changes) == 2)
            assert dict(informer.values) == {"shop/stays": 2, "shop/new": 3}
    assert sorted(changes, key=str) == [("shop/gone", 1, None), ("shop/new", None, 3)]


async def test_a_server_that_is_away_is_asked_again_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    changes: list[Change] = []
    async with api_server() as (server, api):
        server.put("a", size=1)
        await server.stop()
        informer = informer_of(api, changes)
        async with running(informer.run()) as task:
            await until(lambda: len(caplog.records) >= 3)
            assert not task.done()
            assert not informer.synced.is_set()
            assert informer.idle_seconds < 2, "a server that is asked in vain is no stuck watch"
            await server.start()
            await until(informer.synced.is_set)
    assert changes == [("shop/a", None, 1)]
    assert "ClientConnectorError" in caplog.text


async def test_a_refusal_is_retried_because_roles_may_not_be_loaded_yet(caplog: pytest.LogCaptureFixture) -> None:
    changes: list[Change] = []
    async with api_server() as (server, api):
        server.put("a", size=1)
        server.refusals.extend(refusal(403, "Forbidden", "widgets is forbidden") for _ in range(3))
        informer = informer_of(api, changes)
        async with running(informer.run()):
            await until(informer.synced.is_set)
        assert server.num_lists == 4
    assert changes == [("shop/a", None, 1)]
    assert caplog.text.count("403 Forbidden: widgets is forbidden") == 3


async def test_an_expired_version_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with api_server() as (server, api), running(informer_of(api, []).run()):
        await until(lambda: server.watches)
        server.expire_streams()
        await until(lambda: server.num_lists == 2)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_lists_that_succeed_do_not_reset_the_delay_while_watches_fail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="hisparse_operator")
    async with api_server() as (server, api):
        server.watch_refusals.extend(refusal(403, "Forbidden", "cannot watch") for _ in range(4))
        async with running(informer_of(api, []).run()):
            await until(lambda: len(server.watches) == 5)
            server.end_streams()
            await until(lambda: len(server.watches) == 6)
            server.expire_streams()
            await until(lambda: len(server.watches) == 7)
    assert [record.args[-1] for record in caplog.records if isinstance(record.args, tuple)] == [0.01, 0.02, 0.04, 0.05, 0.01]


async def test_the_selector_goes_with_list_and_watch() -> None:
    async with api_server() as (server, api):
        informer: Informer[int] = Informer(api=api, path=PATH, slim=len, on_change=lambda *_: None, selector="app=shop")
        async with running(informer.run()):
            await until(lambda: server.watches)
    assert [request.query["labelSelector"] for request in server.requests] == ["app=shop", "app=shop"]
