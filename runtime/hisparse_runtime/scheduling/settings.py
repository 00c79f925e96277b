"""Limits of a step."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """`steps_in_flight`: 2 plans a step while the one before it runs. `by_priority`: else in order of arrival.

    `lookahead_tokens`: positions behind the scheduled ones that drafting writes to. `defers_frees`: blocks that a step in flight
    may still write are not handed out before it is done, since a copy that is not ordered with steps could fill them at once.
    `drops_stale_output`: output in flight of a preempted request is computed again instead of delivered, for KV that somebody
    waits for.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    page_tokens: int
    steps_in_flight: int = 1
    num_speculative_tokens: int = 0
    lookahead_tokens: int = 0
    by_priority: bool = False
    defers_frees: bool = False
    drops_stale_output: bool = False
