"""Events about objects, posted over real HTTP."""

import json
import logging

import pytest

from hisparse_operator.cluster.events import EventPoster
from tests.unit.operator.cluster.api_server import api_server, refusal
from tests.unit.operator.objects import body
from tests.unit.operator.waiting import running, until

pytestmark = pytest.mark.anyio


async def test_an_event_names_its_object_and_says_what_happened() -> None:
    async with api_server() as (server, api):
        events = EventPoster(api)
        events.post(body(), type="Warning", reason="OOMKilled", message="Ready: exit code 137")
        async with running(events.run()):
            await until(lambda: server.requests)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/shop/events")
    event = json.loads(request.body)
    assert event["metadata"] == {"namespace": "shop", "generateName": "agents."}
    assert event["involvedObject"] == {
        "apiVersion": "hisparse.dev/v1alpha1",
        "kind": "HiSparseDeployment",
        "name": "agents",
        "namespace": "shop",
        "uid": "uid-1",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "OOMKilled", "Ready: exit code 137")
    assert (event["source"], event["count"]) == ({"component": "hisparse-operator"}, 1)


async def test_a_message_is_cut_to_what_the_api_server_takes() -> None:
    async with api_server() as (server, api):
        events = EventPoster(api)
        events.post(body(), type="Normal", reason="Serving", message="x" * 1024)
        events.post(body(), type="Normal", reason="Serving", message="x" * 1025)
        async with running(events.run()):
            await until(lambda: len(server.requests) == 2)
    messages = [json.loads(request.body)["message"] for request in server.requests]
    assert messages == ["x" * 1024, "x" * 1021 + "..."]


async def test_an_event_that_is_refused_is_logged_and_the_next_is_posted(caplog: pytest.LogCaptureFixture) -> None:
    async with api_server() as (server, api):
        server.refusals.append(refusal(403, "Forbidden", "namespace is being terminated"))
        events = EventPoster(api)
        for reason in ("First", "Second"):
            events.post(body(), type="Normal", reason=reason, message="")
        async with running(events.run()):
            await until(lambda: len(server.requests) == 2)
    assert "event First was not posted: ApiError: 403 Forbidden: namespace is being terminated" in caplog.text
    assert "Second" not in caplog.text


async def test_more_events_than_can_wait_are_dropped_with_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hisparse_operator.cluster.events._MOST_WAITING", 2)
    caplog.set_level(logging.WARNING)
    async with api_server() as (server, api):
        events = EventPoster(api)
        for number in range(3):
            events.post(body(), type="Normal", reason=f"R{number}", message="news")
        async with running(events.run()):
            await until(lambda: len(server.requests) == 2)
    assert [json.loads(request.body)["reason"] for request in server.requests] == ["R0", "R1"]
    assert "2 events wait to be posted; dropped one: R2: news" in caplog.text
