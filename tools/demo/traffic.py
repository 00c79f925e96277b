"""Multi-turn agent conversations replayed against an OpenAI endpoint."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

# What a growing conversation may use for prompts: bytes that the tokenizer knows as they are.
_FIRST_TOKEN, _LAST_TOKEN = 32, 126
_REQUEST_SECONDS = 300.0
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. Its first `shared_prefix_tokens` are those of the turn before, the rest is new."""

    prompt_tokens: int
    output_tokens: int
    shared_prefix_tokens: int


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    turns: tuple[Turn, ...]


@dataclass(slots=True)
class Outcome:
    """What came of a replay so far."""

    asked: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    failures: list[str] = field(default_factory=list)
    latencies_seconds: list[float] = field(default_factory=list)


def read_conversations(path: Path) -> list[Conversation]:
    """The sample: a header line, then a conversation a line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    header = json.loads(lines[0])
    if header.get("format") != "agent-traffic/1":
        raise ValueError(f"{path}: the first line names the format {header.get('format')!r}, expected 'agent-traffic/1'")
    return [Conversation(row["id"], tuple(Turn(*turn) for turn in row["turns"])) for row in map(json.loads, lines[1:])]


async def replay(conversations: list[Conversation], *, base_url: str, model: str, concurrency: int, outcome: Outcome) -> None:
    """All turns of all conversations, `concurrency` conversations at a time, the turns of one after each other."""
    waiting = list(reversed(conversations))
    async with httpx.AsyncClient(base_url=base_url, timeout=_REQUEST_SECONDS, trust_env=False) as client:

        async def agent() -> None:
            while waiting:
                await _converse(client, waiting.pop(), model=model, outcome=outcome)

        await asyncio.gather(*(agent() for _ in range(concurrency)))


async def _converse(client: httpx.AsyncClient, conversation: Conversation, *, model: str, outcome: Outcome) -> None:
    words = random.Random(conversation.name)  # noqa: S311 - the same prompts in every run
    prompt: list[int] = []
    for number, turn in enumerate(conversation.turns):
        kept = prompt[: turn.shared_prefix_tokens]
        prompt = kept + [words.randint(_FIRST_TOKEN, _LAST_TOKEN) for _ in range(turn.prompt_tokens - len(kept))]
        outcome.asked += 1
        started = time.monotonic()
        failure = await _ask(
            client, {"model": model, "prompt": prompt, "max_tokens": turn.output_tokens, "temperature": 0}, outcome
        )
        if failure:
            outcome.failures.append(f"{conversation.name} turn {number + 1}: {failure}")
            return
        outcome.answered += 1
        outcome.latencies_seconds.append(time.monotonic() - started)


async def _ask(client: httpx.AsyncClient, request: dict[str, object], outcome: Outcome) -> str:
    """Empty when answered, else what went wrong the last time. A full queue is asked again, as an agent would."""
    for _ in range(_TRIES):
        try:
            response = await client.post("/v1/completions", json=request)
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        if response.status_code == 200:
            usage = response.json()["usage"]
            outcome.prompt_tokens += usage["prompt_tokens"]
            outcome.output_tokens += usage["completion_tokens"]
            return ""
        if response.status_code != 503:
            break
        await asyncio.sleep(min(5.0, float(response.headers.get("Retry-After", "1"))))
    return f"HTTP {response.status_code}: {response.text[:200]}"
