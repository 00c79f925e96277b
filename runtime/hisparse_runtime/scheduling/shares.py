"""What a request gets of a step's token budget, and what that takes."""

from hisparse_runtime.scheduling.request import Request
from hisparse_runtime.scheduling.settings import SchedulerSettings
from hisparse_runtime.scheduling.step import Step


def running_share(request: Request, budget: int, settings: SchedulerSettings) -> int:
    """Tokens of a running request in the next step; not above 0: it sits out."""
    if request.has_scheduled_its_end:
        return 0
    return min(request.num_missing, budget, settings.max_model_len - 1 - request.num_computed)


def first_share(request: Request, start: int, step: Step, settings: SchedulerSettings) -> tuple[int, int]:
    """Tokens of an admission behind its first `start`, and how many of them stand for drafts. (0, 0): better in the next step.

    One that computes a single token is filled up to what a request with drafts computes, so that the batch stays uniform.
    """
    drafts = settings.num_speculative_tokens
    count = request.num_tokens - start
    is_decode = drafts and count == 1 and not step.has_prefill and (step.has_running or start)
    if is_decode and start + 2 + drafts <= settings.max_model_len:
        return (1 + drafts, drafts) if 1 + drafts <= step.budget else (0, 0)
    return min(count, step.budget), 0


def places(request: Request, count: int, settings: SchedulerSettings) -> tuple[str, int]:
    """For how many tokens in all a running request needs a place when the step computes `count` of them."""
    return request.request_id, min(request.num_computed + count + settings.lookahead_tokens, settings.max_model_len)


def known(request: Request, count: int) -> tuple[str, int]:
    """How many of its tokens are computed once the step has run that has `count` of its positions, not all of which are known."""
    return request.request_id, min(request.num_computed + count, len(request.tokens))
