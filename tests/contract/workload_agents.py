"""Workloads after recorded multi-turn conversations of coding agents, scaled down: long shared prefixes, short answers, pauses.

`data/agent-conversations.jsonl.gz` is a sample of callanjfox/kv-cache-tester (Apache-2.0). A turn there:
`[arrival_s, think_s, prompt_tokens, output_tokens, tokens of the prompt's prefix shared with an earlier turn]`.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.contract.workloads import PAGE_TOKENS, Arrival, MemoryMode, Request, Segment, Settings, Workload

CONVERSATIONS = Path(__file__).parent / "data" / "agent-conversations.jsonl.gz"
CONVERSATIONS_PER_WORKLOAD = 4

PROMPT_SCALE, OUTPUT_SCALE, SECONDS_PER_STEP = 64, 16, 15
MAX_STEPS = 320

Turn = tuple[float, float, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """A model on a GPU that holds some of the conversations; the host and the offload tier hold more, or all."""

    model: str
    mode: MemoryMode
    gpu_blocks: int
    host_blocks: int | None = None
    offload_pages: int | None = None
    steps_in_flight: Literal[1, 2] = 2
    num_speculative_tokens: int = 0
    policy: Literal["fcfs", "priority"] = "fcfs"


MACHINES = (
    _Machine(model="glm-5.3", mode="hisparse", gpu_blocks=4600, host_blocks=400),
    _Machine(model="glm-5.3", mode="hisparse", gpu_blocks=4700, host_blocks=260, offload_pages=300),
    _Machine(model="deepseek-v3.2", mode="hisparse", gpu_blocks=1500, host_blocks=300, offload_pages=400, steps_in_flight=1),
    _Machine(model="deepseek-v3.2", mode="hisparse", gpu_blocks=2100, host_blocks=500, num_speculative_tokens=2),
    _Machine(model="groups-4", mode="hisparse", gpu_blocks=250, host_blocks=250, offload_pages=250, num_speculative_tokens=1),
    _Machine(model="groups-4", mode="hisparse", gpu_blocks=225, host_blocks=160, steps_in_flight=1, policy="priority"),
    _Machine(model="groups-2", mode="hisparse", gpu_blocks=195, host_blocks=350, offload_pages=120),
    _Machine(model="groups-1", mode="hisparse", gpu_blocks=75, host_blocks=300, steps_in_flight=1),
    _Machine(model="glm-5.3", mode="offload", gpu_blocks=60, offload_pages=300),
    _Machine(model="glm-5.3", mode="offload", gpu_blocks=70, offload_pages=150, steps_in_flight=1, num_speculative_tokens=2),
    _Machine(model="deepseek-v3.2", mode="preempt", gpu_blocks=110),
    _Machine(model="deepseek-v3.2", mode="preempt", gpu_blocks=90, steps_in_flight=1),
)


def agent_workloads() -> list[Workload]:
    """One for each machine, with the next few conversations."""
    conversations = list(_conversations())
    return [_workload(number, machine, conversations) for number, machine in enumerate(MACHINES)]


def _workload(number: int, machine: _Machine, conversations: list[list[Turn]]) -> Workload:
    first = number * CONVERSATIONS_PER_WORKLOAD
    chosen = [conversations[(first + offset) % len(conversations)] for offset in range(CONVERSATIONS_PER_WORKLOAD)]
    arrivals = [arrival for talk, turns in enumerate(chosen) for arrival in _arrivals(talk, turns)]
    longest = max(arrival.request.prompt_tokens + arrival.request.max_tokens for arrival in arrivals)
    return Workload(
        name=f"agents-{number}",
        settings=Settings(
            model=machine.model,
            mode=machine.mode,
            gpu_blocks=machine.gpu_blocks,
            host_blocks=machine.host_blocks,
            max_num_batched_tokens=1024,
            max_num_seqs=8,
            max_model_len=longest + PAGE_TOKENS,
            steps_in_flight=machine.steps_in_flight,
            ack_delay_steps=1 + number % 2,
            num_speculative_tokens=machine.num_speculative_tokens,
            policy=machine.policy,
            offload_pages=machine.offload_pages,
        ),
        arrivals=tuple(arrivals),
        max_steps=MAX_STEPS,
    )


def _arrivals(talk: int, turns: list[Turn]) -> Iterator[Arrival]:
    before: str | None = None
    prompt: list[Segment] = []
    for number, (_, think_seconds, prompt_tokens, output_tokens, shared_tokens) in enumerate(turns):
        length = max(prompt_tokens // PROMPT_SCALE, 2)
        kept = min(shared_tokens // PROMPT_SCALE, length - 1)
        stream = 100 * talk + number
        prompt = [*_first(prompt, kept), Segment(stream, length)]
        request = Request(
            id=f"a{talk}.{number}",
            prompt=tuple(prompt),
            max_tokens=min(max(output_tokens // OUTPUT_SCALE, 1), 60),
            priority=talk % 2,
            accepted=(2, 0, 1),
        )
        steps = 4 * talk if before is None else 1 + min(int(think_seconds) // SECONDS_PER_STEP, 12)
        yield Arrival(step=steps, request=request, after=before)
        before = request.id


def _first(prompt: list[Segment], num_tokens: int) -> list[Segment]:
    """The segments of a prompt's first tokens; what is behind its end counts as its last stream."""
    result: list[Segment] = []
    for stream, end in prompt:
        if num_tokens <= end:
            return [*result, Segment(stream, num_tokens)] if num_tokens else result
        result.append(Segment(stream, end))
    return [*result[:-1], Segment(result[-1].stream, num_tokens)] if result else []


def _conversations() -> Iterator[list[Turn]]:
    with gzip.open(CONVERSATIONS, "rt", encoding="utf-8") as file:
        _, *rows = (json.loads(line) for line in file)
    for row in rows:
        turns: list[Any] = row["turns"]
        yield [tuple(turn) for turn in turns]
