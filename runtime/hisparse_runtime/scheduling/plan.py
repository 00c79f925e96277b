"""What one step does, and what comes back from it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hisparse_runtime.policy import StepChanges
from hisparse_runtime.scheduling.request import FinishReason, Request


# Tuples are what is made for every request of a step: a frozen dataclass takes three times as long.
class ScheduledRequest(NamedTuple):
    """Positions `start` to `start` + `num_tokens` of a request, the last `num_drafts` of them drafts to be verified.

    `wants_token`: its last position is the newest, so that the step samples. `is_new`: it was admitted with this step (again, if
    it had been preempted). Rows of positions `mirror_start` to `mirror_end` may be written by this step or by one in flight.
    """

    request: Request
    start: int
    num_tokens: int
    num_drafts: int
    wants_token: bool
    is_new: bool
    mirror_start: int
    mirror_end: int

    @property
    def request_id(self) -> str:
        return self.request.request_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A waiting request that got memory: tokens from the prefix cache and tokens to be imported."""

    request_id: str
    cached_tokens: int
    imported_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """In this order: drop what `ended` requests had, apply `changes` and run restores, forward pass, write-backs.

    `ended`: finished or preempted since the plan before, some of which may be in this batch again. `stalled` requests wait for an
    acknowledgement that will free blocks; `deferred` ones were refused memory at admission.
    """

    number: int  # counts steps that schedule tokens, from 1; 0 if this one does not
    requests: Sequence[ScheduledRequest]
    changes: StepChanges
    ended: Collection[str]
    admitted: Sequence[Admitted]
    imports: Sequence[str]  # their memory may be filled from now on
    preempted: Sequence[str]
    stalled: Sequence[str]
    deferred: Mapping[str, str]

    @property
    def num_tokens(self) -> int:
        return sum(scheduled.num_tokens for scheduled in self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """`tokens`: by request that wanted one, the accepted drafts and the token after them. `drafts`: to be verified by the
    request's next step; only if no step is in flight, else the executor keeps them. `completed` are transfers, `completed_jobs`
    those of the offload tier; `imported` and `failed_imports` are requests."""

    tokens: Mapping[str, Sequence[int]]
    drafts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    completed: Collection[int] = ()
    completed_jobs: Collection[int] = ()
    imported: Collection[str] = ()
    failed_imports: Collection[str] = ()


class TokenOutput(NamedTuple):
    """A request's new tokens."""

    request: Request
    tokens: Sequence[int]
    finish_reason: FinishReason | None
