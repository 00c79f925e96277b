"""The scheduler with an executor that only counts: the next token is a function of the tokens before it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hisparse_runtime.policy import Limits, PageState, check_integrity
from hisparse_runtime.scheduling import FinishReason, Request, Scheduler, StepPlan, TokenOutput

VOCAB = 50


def make(
    *, device: int = 200, host: int = 200, offload: int = 200, budget: int = 16, seqs: int = 4, max_model_len: int = 64
) -> Scheduler:
    return Scheduler(
        Limits(
            page_tokens=4,
            num_device_blocks=device,
            num_host_blocks=host,
            num_offload_blocks=offload,
            hot_rows=8,
            max_model_len=max_model_len,
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
        )
    )


def request(name: str, *, prompt: list[int], output: int, stop: frozenset[int] = frozenset()) -> Request:
    return Request(request_id=name, tokens=list(prompt), num_prompt_tokens=len(prompt), max_tokens=output, stop_tokens=stop)


def next_token(tokens: list[int]) -> int:
    return (sum(tokens) * 31 + len(tokens)) % VOCAB


def expected(prompt: list[int], output: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(output):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class Runner:
    """Steps a scheduler and checks it after every step."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.acknowledged: list[int] = []
        self.plans: list[StepPlan] = []
        self.outputs: dict[str, list[int]] = {}

    def step(self) -> list[TokenOutput]:
        self.scheduler.acknowledge(self.acknowledged)
        plan = self.scheduler.schedule()
        self.plans.append(plan)
        check_integrity(self.scheduler.residency)
        self._check_plan(plan)
        running = {each.request_id: each for each in self.scheduler.running}
        tokens = {item.request_id: next_token(running[item.request_id].tokens) for item in plan.requests if item.wants_token}
        self.acknowledged = [write_back.transfer_id for write_back in plan.write_backs]
        outputs = self.scheduler.complete(tokens)
        for output in outputs:
            self.outputs.setdefault(output.request.request_id, []).append(output.token)
        check_integrity(self.scheduler.residency)
        return outputs

    def run(self, *, on_step: Callable[[], None] = lambda: None) -> None:
        for _ in range(5000):
            if not self.scheduler.has_work:
                return
            self.step()
            on_step()
        pytest.fail("the scheduler does not come to an end")

    def _check_plan(self, plan: StepPlan) -> None:
        assert plan.num_tokens <= self.scheduler.limits.max_num_batched_tokens
        for item in plan.requests:
            first, last = item.start // 4, (item.start + len(item.tokens) - 1) // 4
            assert all(item.resident[page] for page in range(first, last + 1)), "a page that is written is on the device"
            assert all(item.host), "every page has its host block"
            assert item.hot or all(item.resident), "host-only pages are read through a hot region"


def test_prompt_is_computed_in_chunks_and_decoding_goes_on_beside_it() -> None:
    runner = Runner(make(budget=8))
    runner.scheduler.add(request("a", prompt=[1, 2, 3], output=4))
    runner.scheduler.add(request("b", prompt=list(range(20)), output=2))
    runner.run()
    chunks = [[(item.request_id, item.start, len(item.tokens)) for item in plan.requests] for plan in runner.plans[:4]]
    assert chunks == [
        [("a", 0, 3), ("b", 0, 5)],
        [("a", 3, 1), ("b", 5, 7)],
        [("a", 4, 1), ("b", 12, 7)],
        [("a", 5, 1), ("b", 19, 1)],
    ]
    assert runner.outputs == {"a": expected([1, 2, 3], 4), "b": expected(list(range(20)), 2)}


def test_waiting_requests_start_in_order_of_arrival_when_a_seat_is_free() -> None:
    runner = Runner(make(seqs=1))
    for name in ("a", "b"):
        runner.scheduler.add(request(name, prompt=[1, 2], output=2))
    runner.step()
    assert ([each.request_id for each in runner.scheduler.running], len(runner.scheduler.waiting)) == (["a"], 1)
    runner.run()
    assert list(runner.outputs) == ["a", "b"]


def test_stop_token_ends_a_request() -> None:
    stop = expected([1, 2], 3)[2]
    runner = Runner(make())
    runner.scheduler.add(request("a", prompt=[1, 2], output=10, stop=frozenset({stop})))
    reasons = [output.finish_reason for _ in range(3) for output in runner.step()]
    assert reasons == [None, None, FinishReason.STOP]
    assert not runner.scheduler.running


def test_request_longer_than_the_model_is_refused() -> None:
    with pytest.raises(ValueError, match="request of 65 tokens, max_model_len is 64"):
        make().add(request("a", prompt=[1] * 60, output=5))


def test_full_host_pool_preempts_the_last_request_and_it_ends_with_the_same_tokens() -> None:
    # 17 host pages: each request grows to 12
    runner = Runner(make(host=18))
    for number in range(2):
        runner.scheduler.add(request(f"r{number}", prompt=[number] * 20, output=28))
    runner.run()
    assert runner.scheduler.counters.preemptions >= 1
    assert runner.outputs == {f"r{number}": expected([number] * 20, 28) for number in range(2)}


def test_preempted_request_comes_back_with_its_prefix_from_the_host() -> None:
    runner = Runner(make(host=18))
    for number in range(2):
        runner.scheduler.add(request(f"r{number}", prompt=[number] * 20, output=28))
    runner.run()
    again = [item for plan in runner.plans for item in plan.requests if item.request_id == "r1" and item.hot and item.start > 0]
    assert again, "the preempted request reads its prefix from the host"


def test_second_turn_computes_only_what_is_new() -> None:
    runner = Runner(make())
    runner.scheduler.add(request("first", prompt=list(range(20)), output=4))
    runner.run()
    second = list(range(20)) + runner.outputs["first"] + [7, 8, 9]
    runner.scheduler.add(request("second", prompt=second, output=3))
    runner.run()
    # 23 of the first turn's 24 tokens have KV: 5 whole pages
    plan = next(plan for plan in runner.plans if any(item.request_id == "second" for item in plan.requests))
    assert [(item.start, item.resident[:5]) for item in plan.requests] == [(20, (0, 0, 0, 0, 0))]
    assert runner.outputs["second"] == expected(second, 3)
    assert (runner.scheduler.counters.prefix_hit_tokens, runner.scheduler.counters.prefix_queried_tokens) == (20, 20 + 27)


def test_aborted_request_gives_everything_back() -> None:
    runner = Runner(make(seqs=1))
    runner.scheduler.add(request("a", prompt=list(range(30)), output=10))
    runner.scheduler.add(request("b", prompt=[1], output=1))
    runner.step()
    assert runner.scheduler.abort("a")
    assert runner.scheduler.abort("b")
    assert not runner.scheduler.abort("a")
    check_integrity(runner.scheduler.residency)
    runner.run()
    residency = runner.scheduler.residency
    assert (residency.device.num_held, residency.host.num_held) == (0, 0)


def test_pages_spill_only_when_the_pool_is_short() -> None:
    def most_host_only(device: int) -> int:
        runner = Runner(make(device=device))
        for number in range(3):
            runner.scheduler.add(request(f"r{number}", prompt=[number] * 40, output=20))
        seen = [0]
        runner.run(
            on_step=lambda: seen.append(
                sum(table.count(PageState.HOST_ONLY) for table in runner.scheduler.residency.tables.values())
            )
        )
        return max(seen)

    assert most_host_only(device=400) == 0
    assert most_host_only(device=60) > 0


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    """Pools between just enough for one request and enough for all."""
    spare_blocks = draw(st.integers(0, 60))
    tight = Limits(
        page_tokens=4,
        num_device_blocks=0,
        num_host_blocks=17 + draw(st.integers(0, 40)),
        num_offload_blocks=draw(st.integers(0, 40)),
        hot_rows=8,
        max_model_len=64,
        max_num_seqs=draw(st.integers(1, 5)),
        max_num_batched_tokens=draw(st.integers(1, 24)),
    )
    return replace(tight, num_device_blocks=1 + tight.device_blocks_needed(64) + spare_blocks)


# family of prompts that share their beginning, prompt length, output length, steps until the next arrival
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 24), st.integers(0, 6)), min_size=1, max_size=10
)


@given(limits=limits(), arrivals=ARRIVALS, aborts=st.sets(st.integers(0, 9), max_size=2))
@settings(max_examples=50, deadline=None)
def test_any_load_ends_with_the_right_tokens_and_every_block_accounted_for(
    limits: Limits, arrivals: list[tuple[int, int, int, int]], aborts: set[int]
) -> None:
    scheduler = Scheduler(limits)
    runner = Runner(scheduler)
    asked = {}
    for number, (family, length, output, pause) in enumerate(arrivals):
        name = f"r{number}"
        asked[name] = ([(family * 7 + position) % VOCAB for position in range(length)], output)
        scheduler.add(request(name, prompt=asked[name][0], output=output))
        for _ in range(pause):
            if scheduler.has_work:
                runner.step()
        if number in aborts:
            scheduler.abort(name)
            check_integrity(scheduler.residency)
    runner.run()
    for number, (name, (prompt, output)) in enumerate(asked.items()):
        got = runner.outputs.get(name, [])
        assert got == expected(prompt, output)[: len(got)]
        assert number in aborts or len(got) == output
    assert (scheduler.residency.device.num_held, scheduler.residency.host.num_held) == (0, 0)
