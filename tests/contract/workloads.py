"""Workloads for schedulers: settings, and requests that arrive, are aborted, or bring KV along. Tokens follow a rule.

A token is a function of a stream and a position, so prompts that share a prefix, and turns that extend an earlier answer,
are described by a few numbers.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

MemoryMode = Literal["hisparse", "preempt", "offload"]
PAGE_TOKENS = 64
TOKEN_VALUES = 100_003  # prime: streams with different numbers differ at every position


def token(stream: int, position: int) -> int:
    """The token of a stream at a position, counted from the start of the sequence."""
    return (stream * 7919 + position * 31) % TOKEN_VALUES + 10


class Segment(NamedTuple):
    """Tokens of one stream, from where the segment before ends up to position `end`."""

    stream: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a scheduler is built for. Blocks as the pools have them, so including the one null block of each pool."""

    model: str  # a name in MODELS
    mode: MemoryMode
    gpu_blocks: int
    host_blocks: int | None  # with HiSparse
    hot_rows: int | None = None  # per request and group; None: vLLM's default
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    steps_in_flight: Literal[1, 2]  # 2: a step is scheduled while the one before it runs (async scheduling)
    ack_delay_steps: int  # outputs between the step that starts a transfer and the one that reports it complete
    num_speculative_tokens: int = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    prefix_caching: bool = True
    imports: bool = False  # a P/D connector is configured
    offload_pages: int | None = None  # what the offload tier holds; in mode "offload", or beside HiSparse for the indexer


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Answers are `max_tokens` long (no stop token), cut at the model's length, and continue the prompt's last stream.

    `accepted`: drafts accepted in the request's successive verifications, over and over; no more than were scheduled.
    `import_steps`: the prompt's KV comes from elsewhere, that many steps after it was given memory; None: it is computed.
    """

    id: str
    prompt: Sequence[Segment]
    max_tokens: int
    priority: int = 0
    accepted: Sequence[int] = (0,)
    import_steps: int | None = None

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return self.prompt[-1].end

    def token_at(self, position: int) -> int:
        """The token at a position of the prompt, or of the answer behind it."""
        stream = next((segment.stream for segment in self.prompt if position < segment.end), self.prompt[-1].stream)
        return token(stream, position)

    def tokens(self) -> list[int]:
        """The prompt."""
        result: list[int] = []
        start = 0
        for stream, end in self.prompt:
            result.extend(token(stream, position) for position in range(start, end))
            start = end
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request comes before step `step`; where `after` names another one: `step` steps after that one finished."""

    step: int
    request: Request
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """A request is given up at step `step`: before it is scheduled, or while it runs. No effect on one that is not there."""

    step: int
    id: str
    while_running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Ends when nothing is left to do, and after `max_steps` steps at the latest."""

    name: str
    settings: Settings
    arrivals: Sequence[Arrival]
    aborts: Sequence[Abort] = field(default=())
    max_steps: int = 400

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; defaults are left out."""
        return _plain_record(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Workload":
        """Reverses `to_json`."""
        return cls(
            name=record["name"],
            settings=Settings(**record["settings"]),
            arrivals=tuple(_arrival(arrival) for arrival in record["arrivals"]),
            aborts=tuple(Abort(**abort) for abort in record.get("aborts", ())),
            max_steps=record.get("max_steps", 400),
        )


def _arrival(record: Mapping[str, Any]) -> Arrival:
    request = dict(record["request"])
    request["prompt"] = tuple(Segment(*segment) for segment in request["prompt"])
    request["accepted"] = tuple(request.get("accepted", (0,)))
    return Arrival(step=record["step"], request=Request(**request), after=record.get("after"))


def _plain_record(value: Any) -> dict[str, Any]:
    items = ((item, getattr(value, item.name)) for item in dataclasses.fields(value))
    return {item.name: _plain(content) for item, content in items if content != item.default}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _plain_record(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
