"""The HTTP surface over a running engine loop, through ASGI."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from hisparse_runtime.engine.build import build_engine
from hisparse_runtime.engine.loop import EngineLoop, EngineState
from hisparse_runtime.engine.model_config import ModelConfig, read_model_config
from hisparse_runtime.engine.server import create_app
from tests.unit.engine.bare_engine import make_options

Body = dict[str, Any]


class Served:
    def __init__(self, engine: EngineLoop, app: FastAPI) -> None:
        self.engine = engine
        self.app = app

    def run(self, talk: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        async def connected() -> None:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://engine", timeout=60) as client:
                await talk(client)

        asyncio.run(connected())

    def post(self, body: Body | bytes) -> httpx.Response:
        answers: list[httpx.Response] = []

        async def talk(client: httpx.AsyncClient) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answers.append(await client.post("/v1/completions", content=content))

        self.run(talk)
        return answers[0]

    def get(self, path: str) -> httpx.Response:
        answers: list[httpx.Response] = []

        async def talk(client: httpx.AsyncClient) -> None:
            answers.append(await client.get(path))

        self.run(talk)
        return answers[0]


def serve(config: ModelConfig, *, max_queued: int = 256, **sizes: Any) -> Served:
    engine = build_engine(config, replace(make_options(**sizes), max_queued=max_queued), on_failure=lambda: None)
    return Served(engine, create_app(engine=engine, config=config, model_name="tiny"))


@pytest.fixture
def served(config: ModelConfig) -> Iterator[Served]:
    served = serve(config)
    served.engine.start()
    yield served
    served.engine.stop()


def test_completion_of_text(served: Served) -> None:
    answer = served.post({"model": "tiny", "prompt": "hello", "max_tokens": 5})
    assert answer.status_code == 200
    body = answer.json()
    assert body["object"] == "text_completion"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["text"]
    assert body["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 5,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_text_and_its_bytes_as_token_ids_are_the_same_prompt(served: Served) -> None:
    texts = [
        served.post({"prompt": prompt, "max_tokens": 8}).json()["choices"][0]["text"] for prompt in ("hé", [104, 0xC3, 0xA9])
    ]
    assert texts[0] == texts[1]


def test_stream_carries_the_same_text_and_the_usage_last(served: Served) -> None:
    body: Body = {"prompt": "hello there", "max_tokens": 12}
    whole = served.post(body).json()
    events = served.post(body | {"stream": True, "stream_options": {"include_usage": True}}).text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == whole["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 11 + ["length"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 12


def test_second_request_reports_its_cached_tokens(served: Served) -> None:
    prompt = list(range(50))
    served.post({"prompt": prompt, "max_tokens": 2})
    usage = served.post({"prompt": [*prompt, 7], "max_tokens": 2}).json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 48}


def test_stop_token_of_the_model_ends_the_answer_unless_ignored(raw_config: dict[str, Any]) -> None:
    served = serve(read_model_config(raw_config | {"eos_token_id": list(range(300))}))
    served.engine.start()
    stopped = served.post({"prompt": "x", "max_tokens": 5}).json()
    assert (stopped["choices"][0]["finish_reason"], stopped["usage"]["completion_tokens"]) == ("stop", 1)
    ignored = served.post({"prompt": "x", "max_tokens": 5, "ignore_eos": True}).json()
    assert (ignored["choices"][0]["finish_reason"], ignored["usage"]["completion_tokens"]) == ("length", 5)
    served.engine.stop()


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"prompt": "x", "model": "other"}, 404, "model", "model 'other' is not served here, 'tiny' is"),
        ({"max_tokens": 1}, 400, "prompt", "prompt: Field required"),
        ({"prompt": 5}, 400, "prompt", "prompt must be a string or a list of token ids"),
        ({"prompt": ["a", "b"]}, 400, "prompt", "prompt must be a string or a list of token ids"),
        ({"prompt": ""}, 400, "prompt", "prompt is empty"),
        ({"prompt": [1, 300]}, 400, "prompt", "token id 300; ids of this model are 0 to 299"),
        ({"prompt": [-1]}, 400, "prompt", "token id -1"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1, got 0"),
        ({"prompt": "x", "max_tokens": "many"}, 400, "max_tokens", "got 'many'"),
        ({"prompt": "x" * 600, "max_tokens": 1}, 400, "prompt", "maximum context length is 512 tokens"),
        ({"prompt": "x" * 500, "max_tokens": 20}, 400, "max_tokens", "500 prompt tokens and max_tokens 20, 8 too many"),
        ({"prompt": "x", "n": 2}, 400, "n", "n=2 is not supported"),
        ({"prompt": "x", "stop": ["a"]}, 400, "stop", "stop=['a'] is not supported"),
        ({"prompt": "x", "stop": "a"}, 400, "stop", "stop='a' is not supported"),
        ({"prompt": "x", "logprobs": 3}, 400, "logprobs", "logprobs=3 is not supported"),
        ({"prompt": "x", "echo": True}, 400, "echo", "echo=True is not supported"),
        (b"{", 400, None, "Invalid JSON"),
        (b"[]", 400, None, "body: "),
        (b'{"prompt": "' + b"x" * 100_000 + b'"}', 413, None, "the body is larger than 73728 bytes"),
    ],
)
def test_wrong_request_is_told_what_is_wrong(
    served: Served, body: Body | bytes, status: int, param: str | None, words: str
) -> None:
    answer = served.post(body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (status, param, "invalid_request_error")
    assert words in error["message"]


def test_unknown_path_has_the_shape_of_an_error(served: Served) -> None:
    answer = served.get("/v1/nothing")
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "GET /v1/nothing: Not Found")


def test_models_are_listed(served: Served) -> None:
    (card,) = served.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"]) == ("tiny", 512)


def test_health_follows_the_engine(config: ModelConfig) -> None:
    served = serve(config)
    assert (served.get("/health").status_code, served.get("/health").json()) == (503, {"status": "starting"})
    served.engine.start()
    assert served.get("/health").status_code == 200
    served.engine.drain()
    assert (served.get("/health").status_code, served.get("/health").json()) == (503, {"status": "draining"})
    refusal = served.post({"prompt": "x"})
    assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "1")
    assert refusal.json()["error"]["message"] == "the engine is draining"
    served.engine.stop()


def test_full_queue_is_answered_at_once(config: ModelConfig) -> None:
    served = serve(config, max_queued=1, max_num_seqs=1)
    served.engine.start()

    async def talk(client: httpx.AsyncClient) -> None:
        body = {"prompt": "x", "max_tokens": 400}
        posts = [client.post("/v1/completions", json=body) for _ in range(4)]
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*posts))
        assert statuses == [200, 200, 503, 503]

    served.run(talk)
    served.engine.stop()


def test_residency_has_every_key_and_adds_up_while_requests_run(config: ModelConfig) -> None:
    served = serve(config, device_blocks=80)
    served.engine.start()
    seen: list[Body] = []

    async def talk(client: httpx.AsyncClient) -> None:
        bodies = [{"prompt": [number * 31 % 300] * 200, "max_tokens": 60} for number in range(5)]
        posts = [asyncio.create_task(client.post("/v1/completions", json=body)) for body in bodies]
        while not all(post.done() for post in posts):
            seen.append((await client.get("/hisparse/residency")).json())
            await asyncio.sleep(0.01)
        assert all(post.result().status_code == 200 for post in posts)
        seen.append((await client.get("/hisparse/residency")).json())

    served.run(talk)
    for report in seen:
        requests = report["requests"]
        assert requests["full"] + requests["mixed"] + requests["none"] == requests["running"]
    assert any(report["requests"]["mixed"] > 1 for report in seen)
    assert any(report["pages"]["host_only"] > 5 for report in seen)
    last = seen[-1]
    assert set(last) == {"schema", "engine", "requests", "pages", "host_pool", "device_pool", "offload", "hot", "mirror_bytes"}
    assert last["schema"] == "hisparse.dev/residency/v1"
    assert last["engine"] | {"uptime_seconds": 0} == {
        "type": "Embedded",
        "version": "0.1.0",
        "model": "tiny",
        "uptime_seconds": 0,
    }
    assert set(last["requests"]) == {"running", "waiting", "full", "mixed", "none", "finished"}
    assert set(last["pages"]) == {"dirty", "pending", "clean_pinned", "unpinned", "host_only"}
    assert set(last["hot"]) == {"regions_in_use", "hits", "misses", "host_to_device_bytes"}
    assert (last["requests"]["running"], last["requests"]["finished"]) == (0, 5)
    assert last["hot"]["misses"] > 0
    assert last["hot"]["host_to_device_bytes"] == last["hot"]["misses"] * 96
    assert last["host_pool"]["capacity_bytes"] == 499 * 3072
    served.engine.stop()


def test_metrics_tell_the_same_as_the_report(served: Served) -> None:
    served.post({"prompt": list(range(40)), "max_tokens": 3})
    lines = dict(line.rsplit(" ", 1) for line in served.get("/metrics").text.splitlines() if not line.startswith("#"))
    labels = '{engine="0",model_name="tiny"}'
    assert float(lines["vllm:prompt_tokens_total" + labels]) == 40
    assert float(lines["vllm:generation_tokens_total" + labels]) == 3
    assert float(lines["vllm:num_requests_running" + labels]) == 0
    assert float(lines['hisparse_requests{residency="mixed"}']) == 0
    assert float(lines['hisparse_pages{state="clean_pinned"}']) == 0
    assert float(lines['hisparse_pool_bytes{kind="capacity",pool="host"}']) == 499 * 3072
    for name in ("cache_hits_total", "cache_misses_total", "host_to_device_bytes_total", "host_cache_usage_perc"):
        assert "vllm:hisparse_" + name + labels in lines


def test_engine_failure_fails_requests_and_health_and_is_reported(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_plan: object) -> None:
        raise ZeroDivisionError("no rows")

    monkeypatch.setattr(served.engine._executor, "submit", broken)
    answer = served.post({"prompt": "x", "max_tokens": 3})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_error")
    assert "ZeroDivisionError: no rows" in answer.json()["error"]["message"]
    assert served.engine.state is EngineState.FAILED
    health = served.get("/health")
    assert (health.status_code, health.json()) == (503, {"status": "failed", "reason": "ZeroDivisionError: no rows"})
    assert served.post({"prompt": "x"}).status_code == 503
    assert "engine step failed" in caplog.text
