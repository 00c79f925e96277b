"""Who runs the plans: the engine with a model, a simulator in virtual time."""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from hisparse_runtime.scheduling.plan import StepPlan, StepResult, TokenOutput
from hisparse_runtime.scheduling.scheduler import Scheduler


class Executor(Protocol):
    def submit(self, plan: StepPlan) -> None:
        """Starts a step. Steps run in the order in which they are submitted."""

    def collect(self) -> StepResult:
        """Waits for the oldest step that is not collected yet."""


class Stepper:
    """Keeps as many steps in flight as the scheduler was built for: one, or two so that one is planned while another runs."""

    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._in_flight: deque[StepPlan] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self._in_flight) or self._scheduler.has_work

    def step(self) -> Sequence[TokenOutput]:
        """Plans and starts a step, and processes the oldest one in flight if there are enough of them."""
        plan = self._scheduler.schedule()
        self._executor.submit(plan)
        self._in_flight.append(plan)
        if len(self._in_flight) < self._scheduler.settings.steps_in_flight:
            return ()
        return self._scheduler.update(self._in_flight.popleft(), self._executor.collect())
