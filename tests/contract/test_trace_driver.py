"""The worker that the driver plays, with a scheduler that follows a script."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tests.contract.trace_driver import Output, Scheduled, drive
from tests.contract.traces import Admission, Limits, OffloadJob, RequestState, Step, Transfer
from tests.contract.workloads import Abort, Arrival, Request, Segment, Settings, Workload

ALIVE = {"a": RequestState(status="running", tokens=10, computed=10, pages=1)}


def test_a_transfer_is_reported_so_many_outputs_after_its_own() -> None:
    transfer = Transfer("a", 0, restore=False)
    scheduler = Script([_step(transfers=[transfer]), _step(), _step(), _step()])
    steps = list(drive(_workload(ack_delay_steps=2), scheduler))
    assert [output.completed for output in scheduler.outputs] == [[], [], [0], []]
    assert [step.acked for step in steps] == [[], [], [transfer], []]


def test_with_two_steps_in_flight_the_first_output_comes_after_the_second_schedule() -> None:
    scheduler = Script([_step(scheduled={"a": 1}, samples={"a"}), _step(), _step()])
    steps = list(drive(_workload(steps_in_flight=2), scheduler))
    assert scheduler.calls == ["add a", "schedule", "schedule", "update", "schedule", "update"]
    assert [step.sampled for step in steps] == [{}, {"a": 1}, {}]


def test_drafts_are_accepted_in_turn_and_none_right_after_admission() -> None:
    verify: dict[str, Any] = {"scheduled": {"a": 4}, "drafts": {"a": 3}, "samples": {"a"}}
    scheduler = Script([_step(admitted=[Admission("a", 0, 0)], **verify), _step(**verify), _step(**verify), _step(**verify)])
    list(drive(_workload(num_speculative_tokens=3, accepted=(2, 5)), scheduler))
    assert [output.sampled["a"] for output in scheduler.outputs] == [1, 3, 4, 3]


def test_an_import_arrives_so_many_steps_after_its_admission() -> None:
    scheduler = Script([_step(admitted=[Admission("a", 0, 64)]), _step(), _step(), _step()])
    list(drive(_workload(import_steps=2), scheduler))
    assert [output.arrived for output in scheduler.outputs] == [None, None, "a", None]


def test_a_load_brings_its_request_and_a_flushed_store_ends_at_once() -> None:
    jobs = [OffloadJob("a", 0, 2, load=True), OffloadJob("b", 3, 1, load=False), OffloadJob("b", 4, 1, load=False)]
    scheduler = Script([_step(jobs=jobs), _step(flushed=[2]), _step(), _step()])
    list(drive(_workload(ack_delay_steps=1), scheduler))
    assert [output.completed_jobs for output in scheduler.outputs] == [[], [0, 2], [1], []]
    assert [output.arrived for output in scheduler.outputs] == [None, "a", None, None]


def test_a_request_that_follows_another_comes_after_its_end() -> None:
    scheduler = Script([_step(), _step(finished=["a"]), _step(), _step(), _step()])
    list(drive(_workload(followed=2), scheduler))
    assert scheduler.calls == ["add a", *3 * ["schedule", "update"], "add b", *2 * ["schedule", "update"]]


def test_aborts_come_before_the_schedule_or_while_the_step_runs() -> None:
    aborts = (Abort(step=0, id="a", while_running=True), Abort(step=1, id="a"))
    scheduler = Script([_step(), _step()])
    list(drive(_workload(aborts=aborts), scheduler))
    assert scheduler.calls == ["add a", "schedule", "abort a", "update", "abort a", "schedule", "update"]


class Script:
    """Schedules what it is given, and remembers what it hears. Request a lives until the script ends."""

    limits = Limits(
        gpu_blocks=1,
        lookahead_tokens=0,
        reprefillable_tokens=0,
        max_in_flight_tokens=1,
        drops_stale_output=False,
        drops_last_hit_page=False,
    )

    def __init__(self, steps: list[tuple[Scheduled, list[str]]]) -> None:
        self._steps, self._number = steps, -1
        self.calls: list[str] = []
        self.outputs: list[Output] = []

    def add(self, request: Request, *, arrival: int) -> None:
        assert arrival == sum(call.startswith("add") for call in self.calls)
        self.calls.append(f"add {request.id}")

    def abort(self, request_id: str) -> None:
        self.calls.append(f"abort {request_id}")

    def schedule(self) -> Scheduled:
        self.calls.append("schedule")
        self._number += 1
        return self._steps[self._number][0]

    def update(self, scheduled: Scheduled, output: Output) -> None:
        assert any(scheduled is step for step, _ in self._steps)
        self.calls.append("update")
        self.outputs.append(output)

    def observe(self) -> Step:
        is_last = self._number == len(self._steps) - 1
        values: dict[str, Any] = {item.name: () for item in fields(Step)}
        states: Mapping[str, RequestState] = {} if is_last else ALIVE
        return Step(**(values | {"requests": states, "finished": self._steps[self._number][1]}))


def _step(*, finished: list[str] | None = None, samples: set[str] | None = None, **values: Any) -> tuple[Scheduled, list[str]]:
    empty: dict[str, Any] = {"scheduled": {}, "drafts": {}, "admitted": (), "transfers": ()}
    return Scheduled(**(empty | values), samples=frozenset(samples or ())), finished or []


def _workload(
    *,
    accepted: tuple[int, ...] = (0,),
    import_steps: int | None = None,
    followed: int | None = None,
    aborts: tuple[Abort, ...] = (),
    **settings: Any,
) -> Workload:
    first = Request(id="a", prompt=(Segment(1, 10),), max_tokens=9, accepted=accepted, import_steps=import_steps)
    arrivals = [Arrival(step=0, request=first)]
    if followed is not None:
        arrivals.append(
            Arrival(step=followed, request=Request(id="b", prompt=(Segment(2, 5),), max_tokens=1), after="a"),
        )
    common: dict[str, Any] = {"steps_in_flight": 1, "ack_delay_steps": 0, "max_num_batched_tokens": 64, "max_num_seqs": 2}
    settled = Settings(model="groups-1", mode="hisparse", gpu_blocks=9, host_blocks=9, max_model_len=64, **(common | settings))
    return Workload(name="scripted", settings=settled, arrivals=tuple(arrivals), aborts=aborts)
