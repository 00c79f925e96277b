"""What one engine step does."""

from dataclasses import dataclass

from hisparse_runtime.policy import IndexerCopy, WriteBack


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRequest:
    """Tokens `start` to `start + len(tokens)` of a request, and where its pages are during this step (0: not on the device)."""

    request_id: str
    start: int
    tokens: tuple[int, ...]
    wants_token: bool
    resident: tuple[int, ...]
    host: tuple[int, ...]
    indexer: tuple[int, ...]
    hot: tuple[int, ...]
    hot_grant: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """In this order: indexer copies, forward pass over the requests, write-backs."""

    requests: tuple[ScheduledRequest, ...]
    indexer_copies: tuple[IndexerCopy, ...]
    write_backs: tuple[WriteBack, ...]
    fresh_host_blocks: tuple[int, ...]
    live_grants: frozenset[int]

    @property
    def num_tokens(self) -> int:
        return sum(len(request.tokens) for request in self.requests)
