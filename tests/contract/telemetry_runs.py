"""Workloads for vLLM's scheduler with our telemetry, and the process that runs them."""

import random
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.contract.oracle import answers_of
from tests.contract.workloads import PAGE_TOKENS, Abort, Arrival, Request, Segment, Settings, Workload

MAX_STEPS = 2000  # never reached: the engine is idle before
NUM_TALKS, STEPS_BETWEEN_TALKS = 34, 25
Measured = Literal["each step", "idle", "as served"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`measured`: with which period. `fault`: a function of the telemetry that always raises. `switch`: HISPARSE_TELEMETRY."""

    id: str
    workload: Workload
    measured: Measured = "each step"
    fault: str | None = None
    switch: str = ""

    def to_json(self) -> dict[str, Any]:
        """What the upstream side reads."""
        fields = {name: getattr(self, name) for name in ("id", "measured", "fault", "switch")}
        return {**fields, "workload": self.workload.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`steps`: after each output, a page of /metrics and a recount. `decisions`: a hash. `totals`: of events, as observed."""

    decisions: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    snapshots: int = 0
    log: list[str] = field(default_factory=list)
    error: str = ""


def answers(version: str, runs: list[Run], *, timeout_seconds: float) -> dict[str, Answer]:
    """By id."""
    records = answers_of(version, "telemetry_answer", [run.to_json() for run in runs], timeout_seconds=timeout_seconds)
    return {record.pop("id"): Answer(**record) for record in records}


def long_workload(*, with_siblings: bool) -> Workload:
    """About 1,000 steps under pressure: conversations and aborts on a device pool that holds two of them. With siblings: some
    prompts are imported, so HiSparse is one child of two."""
    chance = random.Random(7)  # noqa: S311  repeatable, not secret
    arrivals = [arrival for talk in range(NUM_TALKS) for arrival in _talk(talk, chance, with_imports=with_siblings)]
    last = NUM_TALKS * STEPS_BETWEEN_TALKS
    computed = [arrival.request.id for arrival in arrivals if arrival.request.import_steps is None]  # 0.33 fails at other aborts
    aborts = [
        Abort(step=chance.randint(20, last), id=chance.choice(computed), while_running=chance.random() < 0.5) for _ in range(80)
    ]
    return Workload(
        name="siblings" if with_siblings else "alone",
        settings=_settings(gpu_blocks=120, host_blocks=160, imports=with_siblings),
        arrivals=tuple(arrivals),
        aborts=tuple(aborts),
        max_steps=MAX_STEPS,
    )


def short_workload(*, offload_pages: int | None = None) -> Workload:
    """Three requests that lose pages, and an engine that is idle at its end."""
    requests = (Request(id=f"r{number}", prompt=(Segment(number, 900),), max_tokens=12) for number in range(3))
    return Workload(
        name="short",
        settings=_settings(gpu_blocks=75, host_blocks=60, offload_pages=offload_pages),
        arrivals=tuple(Arrival(step=number, request=request) for number, request in enumerate(requests)),
        max_steps=120,
    )


def _settings(*, gpu_blocks: int, host_blocks: int, imports: bool = False, offload_pages: int | None = None) -> Settings:
    return Settings(
        model="groups-2",
        mode="hisparse",
        gpu_blocks=gpu_blocks,
        host_blocks=host_blocks,
        max_num_batched_tokens=256,
        max_num_seqs=6,
        max_model_len=1600,
        steps_in_flight=2,
        ack_delay_steps=2,
        imports=imports,
        offload_pages=offload_pages,
    )


def _talk(talk: int, chance: random.Random, *, with_imports: bool) -> list[Arrival]:
    """Turns that repeat what was said before. Most begin alike."""
    arrivals, before = [], None
    shared = [Segment(0, 2 * PAGE_TOKENS)] if talk % 3 else []
    prompt = [*shared, Segment(talk + 1, chance.randint(200, 900))]
    for turn in range(3):
        request = Request(
            id=f"t{talk}.{turn}",
            prompt=tuple(prompt),
            max_tokens=chance.randint(5, 60),
            import_steps=chance.randint(0, 6) if with_imports and chance.random() < 0.3 else None,
        )
        arrivals.append(
            Arrival(step=talk * STEPS_BETWEEN_TALKS if before is None else chance.randint(1, 12), request=request, after=before)
        )
        before = request.id
        prompt = [*prompt[:-1], Segment(talk + 1, request.prompt_tokens + request.max_tokens + chance.randint(10, 120))]
    return arrivals
