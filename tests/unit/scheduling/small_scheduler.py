"""A scheduler over a small memory, and a worker that answers with a fixed token and acknowledges when it is told to."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from hisparse_runtime.policy import HiSparseMemory, MemoryPolicy, PolicySettings
from hisparse_runtime.scheduling import Request, Scheduler, SchedulerSettings, StepPlan, StepResult, TokenOutput

PAGE = 4
TOKEN = 7
POLICY: dict[str, Any] = {
    "num_groups": 2,
    "page_tokens": PAGE,
    "num_device_blocks": 200,
    "num_host_blocks": 100,
    "hot_blocks_per_group": 2,
    "window_pages": 8,
    "max_model_len": 100,
}
SCHEDULER: dict[str, Any] = {"max_num_batched_tokens": 32, "max_num_seqs": 8, "max_model_len": 100, "page_tokens": PAGE}


class SmallScheduler:
    def __init__(self, *, policy: dict[str, Any] | None = None, memory: MemoryPolicy | None = None, **settings: Any) -> None:
        self.memory = memory or HiSparseMemory(PolicySettings(**POLICY | (policy or {})))
        self.scheduler = Scheduler(SchedulerSettings(**SCHEDULER | settings), self.memory)
        self.plans: deque[StepPlan] = deque()
        self.transfers: list[int] = []
        self.jobs: list[int] = []

    def add(self, name: str, prompt: Sequence[int], *, max_tokens: int = 4, **changes: Any) -> Request:
        request = Request(request_id=name, tokens=list(prompt), num_prompt_tokens=len(prompt), max_tokens=max_tokens, **changes)
        self.scheduler.add(request)
        return request

    def schedule(self) -> StepPlan:
        plan = self.scheduler.schedule()
        self.plans.append(plan)
        self.transfers += [transfer.transfer_id for transfer in plan.changes.transfers]
        self.jobs += [job.job_id for job in plan.changes.jobs]
        return plan

    def update(self, *, acknowledges: bool = True, accepted: int = 0, **result: Any) -> list[TokenOutput]:
        """Of the oldest plan, in which every request has `accepted` of its drafts accepted."""
        plan = self.plans.popleft()
        tokens = {each.request_id: [TOKEN] * (1 + min(accepted, each.num_drafts)) for each in plan.requests if each.wants_token}
        transfers, jobs = (self.transfers, self.jobs) if acknowledges else ([], [])
        if acknowledges:
            self.transfers, self.jobs = [], []
        return self.scheduler.update(plan, StepResult(tokens=tokens, completed=transfers, completed_jobs=jobs, **result))

    def step(self, **changes: Any) -> dict[str, int]:
        """Tokens that were scheduled."""
        plan = self.schedule()
        self.update(**changes)
        return scheduled(plan)


def scheduled(plan: StepPlan) -> dict[str, int]:
    return {each.request_id: each.num_tokens for each in plan.requests}
