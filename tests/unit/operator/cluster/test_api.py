"""The operator's calls, as a server on localhost receives and answers them."""

import json

import pytest
from aiohttp import web

from hisparse_operator.cluster.api import ApiError
from tests.unit.operator.cluster.api_server import PATH, api_server, refusal

pytestmark = pytest.mark.anyio


async def test_apply_sends_the_object_as_json_under_the_operators_name_and_takes_over_fields() -> None:
    async with api_server() as (server, api):
        body = {"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"text": "ü"}}
        answer = await api.apply(f"{PATH}/a", body)
    (request,) = server.requests
    assert (request.method, request.path) == ("PATCH", f"{PATH}/a")
    assert request.query == {"fieldManager": "hisparse-operator", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.headers["Authorization"] == "Bearer token-of-the-operator"
    assert json.loads(request.body) == body
    assert answer == {**body, "kind": "Answer"}


async def test_create_posts_to_the_collection() -> None:
    async with api_server() as (server, api):
        await api.create(PATH, {"kind": "Widget"})
    (request,) = server.requests
    assert (request.method, request.path, request.headers["Content-Type"]) == ("POST", PATH, "application/json")
    assert json.loads(request.body) == {"kind": "Widget"}


async def test_get_gives_the_object_or_none_when_there_is_none() -> None:
    async with api_server() as (server, api):
        server.put("a", spec={"size": 3})
        found = await api.get(f"{PATH}/a")
        assert found is not None
        assert found["spec"] == {"size": 3}
        assert await api.get(f"{PATH}/b") is None


async def test_a_refusal_carries_status_reason_and_message() -> None:
    async with api_server() as (server, api):
        server.refusals.append(refusal(409, "Conflict", 'conflict with "kubectl"'))
        with pytest.raises(ApiError) as error:
            await api.apply(f"{PATH}/a", {})
    assert (error.value.status, error.value.reason, error.value.message) == (409, "Conflict", 'conflict with "kubectl"')
    assert str(error.value) == '409 Conflict: conflict with "kubectl"'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<html>bad gateway</html>", "<html>bad gateway</html>"),
        ('"no healthy upstream"', "no healthy upstream"),
        ("x" * 9000, "x" * 500),
    ],
)
async def test_a_refusal_of_a_proxy_is_an_api_error_too(content: str, message: str) -> None:
    async with api_server() as (server, api):
        server.refusals.append(web.Response(status=502, text=content))
        with pytest.raises(ApiError) as error:
            await api.get(f"{PATH}/a")
    assert (error.value.status, error.value.reason, error.value.message) == (502, "Unknown", message)


async def test_get_passes_on_any_refusal_but_a_missing_object() -> None:
    async with api_server() as (server, api):
        server.refusals.append(refusal(403, "Forbidden", "not yet"))
        with pytest.raises(ApiError, match="403 Forbidden: not yet"):
            await api.get(f"{PATH}/a")


async def test_list_asks_for_pages_and_passes_the_token_on() -> None:
    async with api_server() as (server, api):
        server.page_size = 2
        for name in ("a", "b", "c"):
            server.put(name)
        first = await api.list_page(PATH, selector="app=shop,tier!=old")
        second = await api.list_page(PATH, continue_token=first.continue_token, selector="app=shop,tier!=old")
    assert [item["metadata"]["name"] for item in first.items + second.items] == ["a", "b", "c"]
    assert (first.resource_version, second.continue_token) == ("103", "")
    assert [request.query for request in server.requests] == [
        {"limit": "500", "labelSelector": "app=shop,tier!=old"},
        {"limit": "500", "labelSelector": "app=shop,tier!=old", "continue": "2"},
    ]


async def test_an_empty_list_may_come_as_null() -> None:
    async with api_server() as (server, api):
        server.refusals.append(web.json_response({"metadata": {"resourceVersion": "7"}, "items": None}))
        assert (await api.list_page(PATH)).items == []


async def test_watch_asks_for_bookmarks_and_yields_what_happened_since() -> None:
    async with api_server() as (server, api):
        server.put("a")
        server.put("b")
        server.delete("a")
        server.end_streams()
        server.put("c")
        events = []
        async for event in api.watch(PATH, resource_version="101"):
            events.append((event["type"], event["object"]["metadata"]["name"]))
            if len(events) == 3:
                server.end_streams()
    assert events == [("ADDED", "b"), ("DELETED", "a"), ("ADDED", "c")]
    (request,) = server.watches
    assert request.query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "101", "timeoutSeconds": "280"}


async def test_watch_yields_an_object_of_a_megabyte() -> None:
    async with api_server() as (server, api):
        server.put("a", text="x" * (1 << 20))
        async for event in api.watch(PATH, resource_version="0"):
            assert len(event["object"]["text"]) == 1 << 20
            server.end_streams()
        assert len(server.watches) == 1


async def test_a_version_that_is_too_old_raises_although_the_answer_was_200() -> None:
    async with api_server() as (server, api):
        server.put("a")
        server.compact()
        with pytest.raises(ApiError) as error:
            await anext(api.watch(PATH, resource_version="101"))
    assert (error.value.status, error.value.reason) == (410, "Expired")


async def test_a_watch_that_is_refused_raises() -> None:
    async with api_server() as (server, api):
        server.watch_refusals.append(refusal(403, "Forbidden", "cannot watch"))
        with pytest.raises(ApiError, match="cannot watch"):
            await anext(api.watch(PATH, resource_version="101"))
