"""What a scheduler asks of the memory that it schedules into, whichever way that is run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hisparse_runtime.policy.allocation import Leftover, PrefixHit
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.settings import PolicySettings
from hisparse_runtime.policy.step_changes import StepChanges


class Refusal(StrEnum):
    """The pool that is too full."""

    DEVICE = "device"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A waiting request that asks for memory.

    `num_tokens` get their place now, prefix hit and `imported_tokens` included; `full_tokens` must fit by the rules of admission,
    and `reserved_blocks` must stay free beside what is taken. `is_load`: the imported tokens are those that the offload tier has.
    """

    request_id: str
    names: PageNames
    hit: PrefixHit
    num_tokens: int
    full_tokens: int
    imported_tokens: int = 0
    is_load: bool = False
    reserved_blocks: int = 0


class MemoryPolicy(Protocol):
    """One caller, between steps. In a step: acknowledge, (admit | resume | grow, publish)*, take_changes.

    `wanted` is in the order of the batch: request ids and numbers of tokens.
    """

    def find_hit(self, names: PageNames, *, num_tokens: int) -> PrefixHit:
        """The longest prefix of a request of `num_tokens` tokens that leaves one to compute."""

    def find_stored(
        self, request_id: str, names: PageNames, hit: PrefixHit, *, num_tokens: int, num_prompt_tokens: int
    ) -> int | None:
        """Tokens behind the hit that the offload tier can bring. None: ask again in the next step."""

    def start_load(self, request_id: str) -> None:
        """Brings what `find_stored` has found, for a request that was admitted with so many imported tokens."""

    def admit(self, admission: Admission) -> Refusal | None:
        """Gives a request its first memory. None: done; else nothing has changed."""

    def resume(self, request_id: str, *, num_tokens: int, full_tokens: int) -> Refusal | None:
        """As `admit`, of a request whose import has arrived."""

    def grow(self, wanted: Sequence[tuple[str, int]]) -> bool:
        """Gives running requests a place for so many tokens in all. False: there is no room for all of them, and nothing changed.

        The same as if one after the other was grown and published: what of them others may read on the device is published
        already, so no growth can take it before that.
        """

    def publish(self, wanted: Sequence[tuple[str, int]]) -> None:
        """Lets others find the full pages of so many known tokens from the start, as soon as they may."""

    def note_finished(self, request_id: str, *, num_tokens: int) -> None:
        """The request has ended with the KV of `num_tokens` tokens; its memory is closed now or later."""

    def close(self, request_id: str, *, has_finished: bool) -> Leftover | None:
        """The request ends or is preempted. What is left has to be given back when no step writes it any more."""

    def give_back(self, leftover: Leftover) -> None: ...

    def take_changes(self, batch: Sequence[tuple[str, int]]) -> StepChanges:
        """What the executor has to know before it runs these requests, each up to so many of its known tokens."""

    def finish_import(self, request_id: str) -> None:
        """All imported tokens have arrived."""

    def acknowledge(self, transfer_ids: Iterable[int]) -> None:
        """Transfers that the executor has completed."""

    def acknowledge_jobs(self, job_ids: Iterable[int]) -> list[str]:
        """Offload jobs that the executor has completed; the requests for which a load is complete."""

    def admitted_need(self, request_id: str, *, num_tokens: int) -> int:
        """Device blocks that a request which holds memory still needs, by the rules of admission."""

    @property
    def settings(self) -> PolicySettings: ...

    @property
    def reads_free_blocks(self) -> bool:
        """Whether requests read blocks that they do not hold any more, until somebody else gets them."""

    @property
    def will_free_blocks(self) -> bool:
        """Whether an acknowledgement that is due makes room, so that nobody needs to be preempted."""

    @property
    def has_transfers(self) -> bool:
        """Whether acknowledgements are due."""

    @property
    def managers_per_request(self) -> int:
        """Kinds of blocks of which a request may need one more in a step."""
