"""What the tokens of a step do to their request."""

from collections.abc import Sequence
from typing import NamedTuple

from hisparse_runtime.scheduling.plan import ScheduledRequest
from hisparse_runtime.scheduling.request import FINISHED, RUNNING, FinishReason, Request
from hisparse_runtime.scheduling.settings import SchedulerSettings


class AppliedTokens(NamedTuple):
    """`is_publishable`: the step has computed KV that the request still holds. `had_placeholders`: tokens were counted ahead."""

    tokens: Sequence[int]
    finish_reason: FinishReason | None
    is_publishable: bool
    had_placeholders: bool


def apply_tokens(
    request: Request, scheduled: ScheduledRequest, tokens: Sequence[int], *, settings: SchedulerSettings
) -> AppliedTokens | None:
    """Appends `tokens` (accepted drafts, then the one after them) up to the request's end. None: nothing to hand out.

    Drafts that were rejected had been counted as computed. What belongs to a step from before a preemption is handed out, but
    counts of computed tokens started anew since.
    """
    request.num_in_flight -= scheduled.num_tokens
    is_stale = request.num_stale > 0
    if is_stale:
        request.num_stale -= scheduled.num_tokens
    if request.status is FINISHED or not tokens or (is_stale and request.drops_stale):
        return None
    is_publishable = not is_stale and request.status is RUNNING
    num_rejected = max(scheduled.num_drafts - (len(tokens) - 1), 0)
    if num_rejected and not is_stale:
        if request.num_computed > 0:
            request.num_computed -= num_rejected
        if request.num_placeholders > 0:
            request.num_placeholders -= num_rejected
    had_placeholders = request.num_placeholders > 0
    kept, reason = _append(request, tokens, max_model_len=settings.max_model_len)
    if not is_stale:
        if reason is not None:
            request.num_computed -= len(tokens) - len(kept)
        if request.num_placeholders > 0:
            request.num_placeholders -= len(tokens)
    return AppliedTokens(kept, reason, is_publishable, had_placeholders)


def _append(request: Request, tokens: Sequence[int], *, max_model_len: int) -> tuple[Sequence[int], FinishReason | None]:
    for count, token in enumerate(tokens, 1):
        request.tokens.append(token)
        reason = request.reason_to_stop(max_model_len=max_model_len)
        if reason is not None:
            return tokens[:count], reason
    return tokens, None
