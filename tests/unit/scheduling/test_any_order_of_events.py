"""Whatever happens in whatever order: after every step a recount of all blocks and pages agrees with what the policy believes."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from hisparse_runtime.policy import HiSparseMemory, OrdinaryMemory, PolicySettings, check_integrity
from hisparse_runtime.scheduling import Request, RequestStatus, Scheduler, SchedulerSettings, StepPlan, StepResult

PAGE = 4
STREAMS = 3
MAX_MODEL_LEN = 100


class SchedulerMachine(RuleBasedStateMachine):
    """A scheduler under a user and a worker who do what they like. Prompts share prefixes; pools are too small for all.

    The device pool holds two chunks: in a smaller one, a request with drafts may preempt itself for ever (in vLLM, too). With an
    offload tier it holds a whole request, since vLLM admits one with a load by all of its other pages, not by the window
    (v1/core/single_type_kv_cache_manager.py, HiSparseResidentManager.get_num_blocks_to_allocate).
    """

    steps_in_flight = 1
    num_speculative_tokens = 0
    ordinary = False

    @initialize(
        groups=st.integers(1, 3),
        window=st.integers(2, 6),
        slack=st.integers(0, 40),
        host=st.integers(30, 60),
        offload=st.sampled_from([0, 10]),
        by_priority=st.booleans(),
    )
    def build(self, groups: int, window: int, slack: int, host: int, offload: int, *, by_priority: bool) -> None:
        resident = MAX_MODEL_LEN // PAGE if offload else 2 * window
        policy = PolicySettings(
            num_groups=groups,
            page_tokens=PAGE,
            num_device_blocks=30 + groups * (resident + 6) + slack,
            num_host_blocks=host,
            hot_blocks_per_group=2,
            window_pages=window,
            max_model_len=MAX_MODEL_LEN,
            drops_last_hit_page=self.num_speculative_tokens > 0,
            num_offload_blocks=offload,
        )
        self.memory: HiSparseMemory | OrdinaryMemory = OrdinaryMemory(policy) if self.ordinary else HiSparseMemory(policy)
        self.scheduler = Scheduler(
            SchedulerSettings(
                max_num_batched_tokens=window * PAGE,
                max_num_seqs=4,
                max_model_len=MAX_MODEL_LEN,
                page_tokens=PAGE,
                steps_in_flight=self.steps_in_flight,
                num_speculative_tokens=self.num_speculative_tokens,
                lookahead_tokens=self.num_speculative_tokens,
                by_priority=by_priority,
                defers_frees=self.steps_in_flight > 1,
            ),
            self.memory,
        )
        self.plans: list[StepPlan] = []
        self.transfers: list[int] = []
        self.jobs: list[int] = []
        self.imports: list[str] = []
        self.num_requests = 0

    @rule(stream=st.integers(0, STREAMS - 1), length=st.integers(1, 70), tail=st.integers(0, 9), data=st.data())
    def add(self, stream: int, length: int, tail: int, data: st.DataObject) -> None:
        tokens = [stream * 1000 + position for position in range(length)] + [self.num_requests] * tail
        self.scheduler.add(
            Request(
                request_id=f"r{self.num_requests}",
                tokens=tokens,
                num_prompt_tokens=len(tokens),
                max_tokens=data.draw(st.integers(1, 20), label="max_tokens"),
                priority=data.draw(st.integers(0, 2), label="priority"),
                is_import=data.draw(st.integers(0, 4), label="is_import") == 0,
            )
        )
        self.num_requests += 1

    @precondition(lambda self: len(self.plans) < self.steps_in_flight)
    @rule()
    def schedule(self) -> None:
        plan = self.scheduler.schedule()
        assert plan.num_tokens <= self.scheduler.settings.max_num_batched_tokens
        assert len(self.scheduler.running) <= self.scheduler.settings.max_num_seqs
        self.plans.append(plan)
        self.transfers += [transfer.transfer_id for transfer in plan.changes.transfers]
        self.jobs += [job.job_id for job in plan.changes.jobs]
        self.imports += plan.imports

    @precondition(lambda self: len(self.plans) == self.steps_in_flight)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        plan = self.plans.pop(0)
        done = {
            name: data.draw(st.integers(0, len(getattr(self, name))), label=name) for name in ("transfers", "jobs", "imports")
        }
        has_failed = data.draw(st.booleans(), label="has_failed")
        taken: dict[str, list[Any]] = {}
        for name, count in done.items():
            taken[name] = getattr(self, name)[:count]
            del getattr(self, name)[:count]
        accepted = data.draw(st.integers(0, 3), label="accepted")
        self.scheduler.update(
            plan,
            StepResult(
                tokens={
                    each.request_id: [5] * (1 + min(accepted, each.num_drafts)) for each in plan.requests if each.wants_token
                },
                drafts={each.request_id: (5,) * self.num_speculative_tokens for each in plan.requests}
                if self.steps_in_flight == 1
                else {},
                completed=taken["transfers"],
                completed_jobs=taken["jobs"],
                imported=() if has_failed else taken["imports"],
                failed_imports=taken["imports"] if has_failed else (),
            ),
        )

    @precondition(lambda self: self.scheduler.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.scheduler.requests)), label="request")
        was_started = name in self.imports or self.scheduler.requests[name].status is not RequestStatus.IMPORTING
        self.scheduler.abort(name)
        assert was_started or name not in self.imports

    @invariant()
    def adds_up(self) -> None:
        if hasattr(self, "memory"):
            check_integrity(self.memory)

    @invariant()
    def pages_that_are_ready_are_published(self) -> None:
        """Of running requests: else to grow them together would not be to grow one after the other."""
        if hasattr(self, "memory") and isinstance(self.memory, HiSparseMemory):
            for request in self.scheduler.running:
                table = self.memory.pools.tables[request.request_id]
                assert table.num_copies_recorded >= table.num_ready

    def teardown(self) -> None:
        """Everything comes to an end, and nothing stays held."""
        if not hasattr(self, "memory"):
            return
        for _ in range(100 + 40 * self.num_requests):  # each may have to run alone, token by token
            if not (self.plans or self.scheduler.has_work or self.transfers or self.jobs):
                break
            if len(self.plans) < self.steps_in_flight:
                self.schedule()
            plan = self.plans.pop(0)
            completed, self.transfers = self.transfers, []
            jobs, self.jobs = self.jobs, []
            imported, self.imports = self.imports, []
            tokens = {each.request_id: [5] for each in plan.requests if each.wants_token}
            self.scheduler.update(plan, StepResult(tokens=tokens, completed=completed, completed_jobs=jobs, imported=imported))
            check_integrity(self.memory)
        assert not self.scheduler.requests, (
            f"no end in sight: {[(r.request_id, r.status) for r in self.scheduler.requests.values()]}"
        )
        device = self.memory.pools.device if isinstance(self.memory, HiSparseMemory) else self.memory.device
        assert device.num_held == 0
        if isinstance(self.memory, HiSparseMemory):
            assert self.memory.pools.host.num_held == 0
            assert sum(self.memory.totals.pages) == 0


class AheadMachine(SchedulerMachine):
    steps_in_flight = 2


class DraftingMachine(SchedulerMachine):
    num_speculative_tokens = 2


class DraftingAheadMachine(SchedulerMachine):
    steps_in_flight = 2
    num_speculative_tokens = 2


class OrdinaryMachine(SchedulerMachine):
    ordinary = True


@pytest.mark.parametrize(
    "machine",
    [SchedulerMachine, AheadMachine, DraftingMachine, DraftingAheadMachine, OrdinaryMachine],
    ids=lambda kind: kind.__name__,
)
def test_everything_adds_up_after_every_step(machine: type[SchedulerMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
