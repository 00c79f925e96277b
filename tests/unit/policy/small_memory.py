"""A memory of two groups with pages of four tokens, and requests put into it by hand."""

from collections.abc import Sequence
from typing import Any

from hisparse_runtime.policy import Admission, HiSparseMemory, PageNames, PolicySettings, Refusal, StepChanges
from hisparse_runtime.policy.page_table import PageTable

PAGE = 4
DEFAULTS: dict[str, Any] = {
    "num_groups": 2,
    "page_tokens": PAGE,
    "num_device_blocks": 61,
    "num_host_blocks": 61,
    "hot_blocks_per_group": 2,
    "window_pages": 8,
    "max_model_len": 400,
}


class SmallMemory:
    """`memory` with the steps of a scheduler that computes all tokens of a request at once."""

    def __init__(self, **changes: Any) -> None:
        self.memory = HiSparseMemory(PolicySettings(**DEFAULTS | changes))
        self.pools = self.memory.pools
        self.tokens: dict[str, list[int]] = {}
        self.names: dict[str, PageNames] = {}

    def table(self, request_id: str) -> PageTable:
        return self.pools.tables[request_id]

    def admit(self, request_id: str, tokens: Sequence[int], *, imported_tokens: int = 0) -> Refusal | None:
        """Memory for all tokens."""
        self.tokens[request_id] = list(tokens)
        names = self.names[request_id] = PageNames(self.tokens[request_id], page_tokens=PAGE)
        refusal = self.memory.admit(
            Admission(
                request_id=request_id,
                names=names,
                hit=self.memory.find_hit(names, num_tokens=len(tokens)),
                num_tokens=len(tokens),
                full_tokens=len(tokens),
                imported_tokens=imported_tokens,
            )
        )
        if refusal is None and not imported_tokens:
            self.memory.publish([(request_id, len(tokens))])
        return refusal

    def grow(self, request_id: str, tokens: Sequence[int]) -> bool:
        self.tokens[request_id] += tokens
        wanted = [(request_id, len(self.tokens[request_id]))]
        has_room = self.memory.grow(wanted)
        if has_room:
            self.memory.publish(wanted)
        return has_room

    def step(self, *request_ids: str) -> StepChanges:
        """A batch of these requests, with all of their tokens computed."""
        return self.memory.take_changes([(request_id, len(self.tokens[request_id])) for request_id in request_ids])

    def step_and_acknowledge(self, *request_ids: str) -> StepChanges:
        changes = self.step(*request_ids)
        self.memory.acknowledge([transfer.transfer_id for transfer in changes.transfers])
        return changes

    def release(self, request_id: str, *, has_finished: bool = True) -> None:
        leftover = self.memory.close(request_id, has_finished=has_finished)
        assert leftover is not None
        self.memory.give_back(leftover)

    def make_hot(self, request_id: str) -> None:
        """The request gets a hot region, and gives its clean pages up."""
        self.table(request_id).hot_required = True
        assert self.grow(request_id, [])
        self.step_and_acknowledge(request_id)

    def fill(self, request_id: str, *, leaving: int) -> None:
        """Another request takes device blocks until so many are free."""
        pages = (self.pools.device.num_free - leaving) // (1 + self.memory.settings.num_groups)
        assert self.admit(request_id, [hash(request_id) % 1000] * (pages * PAGE)) is None
