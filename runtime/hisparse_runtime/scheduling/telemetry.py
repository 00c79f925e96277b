"""What the scheduler has done since start."""

from dataclasses import dataclass

from hisparse_runtime.scheduling.outputs import AppliedTokens
from hisparse_runtime.scheduling.request import Request


@dataclass(slots=True)
class SchedulerCounts:
    """`prefix_queried_tokens`, `prefix_hit_tokens` (also from the offload tier) count first admissions only. `prompt_tokens` are
    those of requests with a first token."""

    finished: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0

    def count_output(self, request: Request, output: AppliedTokens) -> None:
        if request.num_output == len(output.tokens):
            self.prompt_tokens += request.num_prompt_tokens
        self.generation_tokens += len(output.tokens)

    def count_prefix(self, request: Request, *, hit_tokens: int, imported_tokens: int) -> None:
        if request.num_preemptions == 0:
            request.num_cached = hit_tokens + imported_tokens
            self.prefix_queried_tokens += request.num_prompt_tokens
            self.prefix_hit_tokens += hit_tokens
