import pytest

from hisparse_runtime.policy import OrdinaryMemory, PolicySettings, Refusal, Semantics, check_integrity
from hisparse_runtime.scheduling import FinishReason, Request, RequestStatus, StepPlan
from tests.unit.scheduling.small_scheduler import PAGE, POLICY, SmallScheduler, scheduled


def test_prompt_is_computed_in_chunks_and_running_requests_go_first() -> None:
    small = SmallScheduler()
    small.add("a", range(70))
    small.add("b", range(100, 110))
    assert small.step() == {"a": 32}
    assert small.step() == {"a": 32}
    assert small.step() == {"a": 6, "b": 10}
    assert small.step() == {"a": 1, "b": 1}


def test_request_ends_after_its_tokens_or_with_a_stop_token() -> None:
    small = SmallScheduler()
    small.add("long", range(10), max_tokens=2)
    small.add("stopped", range(10), max_tokens=9, stop_tokens=frozenset({7}))
    small.schedule()
    first = small.update()
    small.schedule()
    second = small.update()
    assert [(each.request.request_id, each.finish_reason) for each in (*first, *second)] == [
        ("long", None),
        ("stopped", FinishReason.STOP),
        ("long", FinishReason.LENGTH),
    ]
    assert not small.scheduler.has_work
    assert (small.scheduler.counts.finished, small.scheduler.counts.generation_tokens) == (2, 3)


def test_context_ends_at_the_models_length() -> None:
    small = SmallScheduler(max_num_batched_tokens=200, policy={"max_model_len": 20}, max_model_len=20)
    request = small.add("a", range(17), max_tokens=50)
    for _ in range(5):
        small.step()
    assert (request.num_tokens, request.finish_reason) == (20, FinishReason.LENGTH)


@pytest.mark.parametrize(("length", "message"), [(100, "leaves no room for an answer"), (3, "is here already")])
def test_request_that_cannot_be_served_is_refused(length: int, message: str) -> None:
    small = SmallScheduler()
    small.add("a", range(3))
    with pytest.raises(ValueError, match=message):
        small.add("b" if length == 100 else "a", range(length))


def test_waiting_request_is_admitted_with_all_of_its_prompt_or_not_at_all() -> None:
    small = SmallScheduler(policy={"num_host_blocks": 12})
    small.add("a", range(28))
    small.add("b", range(100, 120))
    small.add("c", range(200, 204))
    plan = small.schedule()
    assert scheduled(plan) == {"a": 28}
    assert plan.deferred == {"b": Refusal.HOST}  # c would fit, but comes later


def test_last_request_gives_way_and_finds_its_own_pages_again() -> None:
    small = SmallScheduler(policy={"num_host_blocks": 14})
    small.add("a", range(22), max_tokens=30)
    small.add("b", range(100, 123), max_tokens=30)
    preempted: list[str] = []
    for _ in range(8):
        plan = small.schedule()
        preempted += plan.preempted
        small.update()
        check_integrity(small.memory)  # type: ignore[arg-type]
    assert preempted == ["b"]
    assert [request.request_id for request in small.scheduler.running] == ["a"]
    small.scheduler.abort("a")
    admitted = small.schedule().admitted[0]
    assert (admitted.request_id, admitted.cached_tokens) == ("b", 5 * PAGE)


def test_i8_nobody_is_preempted_while_an_acknowledgement_will_make_room() -> None:
    small = SmallScheduler(policy={"num_host_blocks": 12, "caches_prefixes": False})
    small.add("a", range(16), max_tokens=30)
    small.add("b", range(100, 116), max_tokens=30)
    small.step(acknowledges=False)
    small.scheduler.abort("b")  # its four host blocks are held by the copies that fill them
    small.add("c", range(200, 211), max_tokens=30)
    small.step(acknowledges=False)
    plans: list[StepPlan] = []
    while not plans or not (plans[-1].stalled or plans[-1].preempted):
        plans.append(small.schedule())
        small.update(acknowledges=False)
    assert (plans[-1].stalled, plans[-1].preempted) == (["a"], [])
    small.schedule()
    small.update()
    assert scheduled(small.schedule()).keys() == {"a", "c"}


def test_most_urgent_request_is_admitted_first_and_the_least_urgent_gives_way() -> None:
    small = SmallScheduler(by_priority=True, max_num_seqs=2, policy={"num_host_blocks": 14})
    small.add("later", range(22), max_tokens=30, priority=5)
    small.add("sooner", range(100, 122), max_tokens=30, priority=1)
    small.add("soonest", range(200, 222), max_tokens=30, priority=0)
    assert [each.request_id for each in small.schedule().admitted] == ["soonest", "sooner"]
    small.update()
    preempted: list[str] = []
    for _ in range(8):
        preempted += small.schedule().preempted
        small.update()
    assert preempted == ["sooner"]


@pytest.mark.parametrize(("semantics", "goes_on"), [(Semantics.V0_33, True), (Semantics.V0_32, False)])
def test_requests_behind_one_that_preempts_itself(semantics: Semantics, *, goes_on: bool) -> None:
    small = SmallScheduler(by_priority=True, policy={"num_host_blocks": 13, "semantics": semantics})
    small.add("least", range(23), max_tokens=30, priority=9)
    small.step()
    small.add("most", range(100, 122), max_tokens=30, priority=0)
    plan = small.schedule()
    while not plan.preempted:
        small.update()
        plan = small.schedule()
    assert plan.preempted == ["least"]
    assert ("most" in scheduled(plan)) is goes_on


def test_step_is_planned_before_the_output_of_the_one_before_is_known() -> None:
    small = SmallScheduler(steps_in_flight=2, defers_frees=True)
    request = small.add("a", range(10), max_tokens=3)
    assert scheduled(small.schedule()) == {"a": 10}
    assert scheduled(small.schedule()) == {"a": 1}
    small.update()
    assert scheduled(small.schedule()) == {"a": 1}
    small.update()
    # Three tokens are sure to come: nothing is computed in vain.
    assert scheduled(small.schedule()) == {}
    small.update()
    assert (request.finish_reason, request.num_output) == (FinishReason.LENGTH, 3)


def test_blocks_of_a_request_that_ends_are_held_until_the_steps_in_flight_are_done() -> None:
    small = SmallScheduler(steps_in_flight=2, defers_frees=True)
    small.add("a", range(10), max_tokens=9)
    small.schedule()
    small.schedule()
    free = small.memory.pools.device.num_free  # type: ignore[attr-defined]
    small.scheduler.abort("a")
    assert small.memory.pools.device.num_free == free  # type: ignore[attr-defined]
    small.update()
    assert small.memory.pools.device.num_free == free  # type: ignore[attr-defined]
    small.update()
    assert small.memory.pools.device.num_held == 0  # type: ignore[attr-defined]


def test_rejected_drafts_are_computed_again() -> None:
    small = SmallScheduler(num_speculative_tokens=3, lookahead_tokens=3)
    request = small.add("a", range(10), max_tokens=20)
    small.step(drafts={"a": (1, 2, 3)})
    assert small.step(accepted=1, drafts={"a": (1, 2, 3)}) == {"a": 4}
    assert (request.num_tokens, request.num_computed) == (13, 12)
    assert small.step(accepted=3) == {"a": 4}
    assert (request.num_tokens, request.num_computed) == (17, 16)
    assert small.step() == {"a": 1}  # no drafts were told


def test_drafts_are_counted_ahead_with_two_steps_in_flight() -> None:
    small = SmallScheduler(num_speculative_tokens=2, lookahead_tokens=2, steps_in_flight=2, defers_frees=True)
    request = small.add("a", range(10), max_tokens=20)
    small.schedule()
    assert scheduled(small.schedule()) == {"a": 3}
    small.update()
    assert scheduled(small.schedule()) == {"a": 3}
    small.update(accepted=1)
    assert (request.num_tokens, request.num_computed) == (13, 15)
    small.update(accepted=0)
    assert (request.num_tokens, request.num_computed) == (14, 13)


def test_import_is_not_run_before_it_has_arrived_and_computes_its_last_token() -> None:
    small = SmallScheduler()
    small.add("a", range(10), is_import=True)
    plan = small.schedule()
    assert (scheduled(plan), plan.imports, plan.admitted[0].imported_tokens) == ({}, ["a"], 10)
    small.update()
    assert small.step(imported=["a"]) == {}
    assert small.step() == {"a": 1}


def test_import_that_fails_is_computed() -> None:
    small = SmallScheduler()
    request = small.add("a", range(10), is_import=True)
    small.step(failed_imports=["a"])
    assert small.step() == {"a": 10}
    assert request.status is RequestStatus.RUNNING


def test_import_that_is_aborted_keeps_its_memory_until_it_has_arrived() -> None:
    small = SmallScheduler()
    small.add("a", range(10), is_import=True)
    small.step()
    small.scheduler.abort("a")
    assert small.memory.pools.device.num_held > 0  # type: ignore[attr-defined]
    small.step(imported=["a"])
    small.step()
    assert small.memory.pools.device.num_held == 0  # type: ignore[attr-defined]
    assert not small.scheduler.has_work


def test_import_waits_for_the_steps_in_flight_that_may_read_its_blocks() -> None:
    for semantics, started in ((Semantics.V0_33, []), (Semantics.V0_32, ["b"])):
        small = SmallScheduler(steps_in_flight=2, defers_frees=True, policy={"semantics": semantics})
        small.add("a", range(10))
        small.schedule()
        small.add("b", range(100, 110), is_import=True)
        assert small.schedule().imports == started
        small.update()
        assert [*started, *small.schedule().imports] == ["b"]


def test_prefix_that_the_device_has_lost_is_loaded_from_the_offload_tier() -> None:
    memory = OrdinaryMemory(PolicySettings(**POLICY | {"num_device_blocks": 12, "num_offload_blocks": 40}))
    small = SmallScheduler(memory=memory)
    small.add("a", range(20), max_tokens=1)
    small.step()
    small.step()
    small.add("stranger", range(100, 140), max_tokens=1)
    small.step()
    small.step()
    small.step()
    small.add("again", [*range(20), 9], max_tokens=2)
    plan = small.schedule()
    # The device still has the first page, since a prefix loses its tail first.
    assert [(each.cached_tokens, each.imported_tokens) for each in plan.admitted] == [(PAGE, 4 * PAGE)]
    assert [(job.request_id, list(job.pages)) for job in plan.changes.jobs if job.is_load] == [("again", [1, 2, 3, 4])]
    assert scheduled(plan) == {}
    small.update()
    assert small.step() == {"again": 1}
    check_integrity(memory)


def test_load_waits_for_the_steps_in_flight_only_where_released_blocks_are_read() -> None:
    memory = OrdinaryMemory(PolicySettings(**POLICY | {"num_device_blocks": 20, "num_offload_blocks": 40}))
    small = SmallScheduler(memory=memory, steps_in_flight=2, defers_frees=True)
    small.add("a", range(20), max_tokens=1)
    small.add("stranger", range(100, 164), max_tokens=1)
    for _ in range(6):
        small.step()
    small.add("other", range(300, 304), max_tokens=9)
    small.schedule()
    small.add("again", [*range(20), 9], max_tokens=2)
    assert [job.request_id for job in small.schedule().changes.jobs if job.is_load] == ["again"]


@pytest.mark.parametrize(("semantics", "flushed"), [(Semantics.V0_33, 1), (Semantics.V0_32, 0)])
def test_store_ends_before_its_block_holds_another_requests_latents(semantics: Semantics, *, flushed: int) -> None:
    small = SmallScheduler(policy={"num_device_blocks": 12, "num_offload_blocks": 40, "semantics": semantics})
    small.add("a", range(4), max_tokens=1)
    small.step(acknowledges=False)
    # All blocks are needed but those of the copy under way, also the one that the store reads: it is free, and last in the queue.
    small.add("b", range(100, 112), max_tokens=1)
    assert len(small.schedule().changes.flushed_jobs) == flushed


def test_abort_of_a_request_that_is_gone_says_so() -> None:
    small = SmallScheduler()
    small.add("a", range(10), max_tokens=1)
    small.step()
    assert not small.scheduler.abort("a")


def test_requests_are_ordered_by_priority_then_arrival() -> None:
    requests = [
        Request(request_id=name, tokens=[], num_prompt_tokens=0, max_tokens=1, priority=p) for name, p in (("a", 1), ("b", 0))
    ]
    requests[1].arrival = 1
    assert min(requests).request_id == "b"
