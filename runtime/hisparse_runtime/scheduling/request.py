"""One request on its way through the scheduler."""

from dataclasses import dataclass, field
from enum import StrEnum


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(slots=True, kw_only=True)
class Request:
    """Prompt and output in one list of tokens; `num_computed` of them have KV. Decoding is the case where one is missing."""

    request_id: str
    tokens: list[int]
    num_prompt_tokens: int
    max_tokens: int
    stop_tokens: frozenset[int] = frozenset()
    num_computed: int = 0
    num_cached: int = 0  # prompt tokens that the first admission found in the prefix cache
    was_admitted: bool = False
    page_hashes: list[bytes] = field(default_factory=list)

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    def finish_reason(self) -> FinishReason | None:
        """Why the request ends with its newest token, or None if it goes on."""
        if self.num_output and self.tokens[-1] in self.stop_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.num_output >= self.max_tokens else None
