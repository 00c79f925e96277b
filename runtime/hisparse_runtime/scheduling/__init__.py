"""Continuous batching over the policy: requests, token budget, chunked prefill, preemption.

May import policy and geometry. Holds no arrays of KV: an executor turns a StepPlan into tokens.
"""

from hisparse_runtime.scheduling.executor import Executor, Stepper
from hisparse_runtime.scheduling.plan import Admitted, ScheduledRequest, StepPlan, StepResult, TokenOutput
from hisparse_runtime.scheduling.request import FinishReason, Request, RequestStatus
from hisparse_runtime.scheduling.scheduler import Scheduler
from hisparse_runtime.scheduling.settings import SchedulerSettings
from hisparse_runtime.scheduling.telemetry import SchedulerCounts

__all__ = [
    "Admitted",
    "Executor",
    "FinishReason",
    "Request",
    "RequestStatus",
    "ScheduledRequest",
    "Scheduler",
    "SchedulerCounts",
    "SchedulerSettings",
    "StepPlan",
    "StepResult",
    "Stepper",
    "TokenOutput",
]
