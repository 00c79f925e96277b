"""Continuous batching over the policy: requests, token budget, chunked prefill, preemption.

May import policy and geometry. Holds no arrays: an executor turns a StepPlan into tokens.
"""

from hisparse_runtime.scheduling.plan import ScheduledRequest, StepPlan
from hisparse_runtime.scheduling.request import FinishReason, Request
from hisparse_runtime.scheduling.scheduler import Scheduler, TokenOutput

__all__ = ["FinishReason", "Request", "ScheduledRequest", "Scheduler", "StepPlan", "TokenOutput"]
