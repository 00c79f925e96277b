"""One request on its way through the scheduler."""

from dataclasses import dataclass, field
from enum import StrEnum

from hisparse_runtime.policy import PageNames


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class RequestStatus(StrEnum):
    WAITING = "waiting"
    IMPORTING = "importing"  # holds memory that is being filled from elsewhere
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


# Looked up for every request of every step; a lookup in the class costs more.
RUNNING, FINISHED = RequestStatus.RUNNING, RequestStatus.FINISHED


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """Prompt and output in one list of tokens; `num_computed` of them have KV, or will have when the steps in flight are done.

    `num_placeholders`: output tokens, drafts included, that steps in flight will bring. `num_drafts` are to be verified next, of
    which the scheduler knows the tokens only if no step is in flight (`drafts`). `num_stale`: scheduled tokens in flight from
    before a preemption, whose output counts but whose KV is gone. `is_import`: the prompt's KV comes from a prefill server.
    """

    request_id: str
    tokens: list[int]
    num_prompt_tokens: int
    max_tokens: int
    stop_tokens: frozenset[int] = frozenset()
    priority: int = 0
    is_import: bool = False
    arrival: int = 0  # set by the scheduler: the order in which requests came
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    num_computed: int = 0
    num_in_flight: int = 0
    num_placeholders: int = 0
    num_drafts: int = 0
    drafts: tuple[int, ...] = ()
    num_stale: int = 0
    drops_stale: bool = False
    num_preemptions: int = 0
    is_prefill_chunk: bool = False
    last_step: int = 0  # the newest step that it was scheduled in
    num_cached: int = 0  # prompt tokens that its first admission did not leave to compute
    names: PageNames = field(init=False)  # set by the scheduler

    def __lt__(self, other: "Request") -> bool:
        """Whether it comes first by priority, smaller numbers being more urgent."""
        return (self.priority, self.arrival) < (other.priority, other.arrival)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_missing(self) -> int:
        """Tokens that the next step may compute: those without KV, with drafts and the outputs of steps in flight."""
        return len(self.tokens) + self.num_drafts + self.num_placeholders - self.num_computed

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def holds_memory(self) -> bool:
        """Of a waiting request."""
        return self.num_computed > 0 or self.status is RequestStatus.IMPORTING

    @property
    def has_scheduled_its_end(self) -> bool:
        """A step in flight brings the last token even if it rejects all drafts."""
        most = self.num_computed + 2 - self.num_placeholders
        return self.num_placeholders > 0 and most >= self.num_prompt_tokens + self.max_tokens

    def reason_to_stop(self, *, max_model_len: int) -> FinishReason | None:
        """Why the request ends with its newest token, or None if it goes on."""
        if self.tokens[-1] in self.stop_tokens:
            return FinishReason.STOP
        if len(self.tokens) >= max_model_len or self.num_output >= self.max_tokens:
            return FinishReason.LENGTH
        return None

    def preempt(self, *, drops_stale: bool) -> None:
        """Its memory is gone; what is in flight comes back as stale output. Once dropped, that share stays dropped: its positions
        are sampled again."""
        self.status = RequestStatus.PREEMPTED
        self.num_computed = 0
        self.drafts, self.num_drafts = (), 0
        self.drops_stale = drops_stale or (self.drops_stale and self.num_stale > 0)
        self.num_stale = self.num_in_flight
        self.num_placeholders = 0
        self.num_preemptions += 1

    def note_scheduled(self, count: int, num_drafts: int, *, step: int, num_coming_drafts: int | None) -> None:
        """`count` tokens, `num_drafts` of them drafts, are in step `step`.

        `num_coming_drafts`: the next step is planned before the output of this one is known, so its tokens are counted ahead, and
        so many drafts with them. None: drafts are told later.
        """
        self.num_computed += count
        self.num_in_flight += count
        self.last_step = step
        self.drafts, self.num_drafts = (), 0
        self.is_prefill_chunk = self.num_computed < self.num_tokens + self.num_placeholders
        if num_coming_drafts is not None and not self.is_prefill_chunk:
            self.num_placeholders += 1 + num_drafts
            self.num_drafts = num_coming_drafts
