"""Requests whose KV comes from elsewhere: from a prefill server, or from the offload tier."""

from collections.abc import Iterable

from hisparse_runtime.policy import MemoryPolicy
from hisparse_runtime.scheduling.request import Request, RequestStatus


class Imports:
    """An import holds its memory from its admission on and runs when it has arrived.

    With steps in flight it starts late: they may still read unpinned pages that were taken for it.
    """

    def __init__(self, memory: MemoryPolicy) -> None:
        self._memory = memory
        self._arrived: set[str] = set()
        self._failed: set[str] = set()
        self._late: dict[str, tuple[int, bool]] = {}  # the step that has to be processed before, and whether it is a load
        self._started: list[str] = []

    def start(self, request_id: str, *, is_load: bool, after_step: int | None) -> None:
        """`is_load`: from the offload tier. Not before `after_step` is processed, if there is one."""
        if after_step is not None:
            self._late[request_id] = (after_step, is_load)
        elif is_load:
            self._memory.start_load(request_id)
        else:
            self._started.append(request_id)

    def start_late(self, *, processed_step: int) -> None:
        for request_id, (step, is_load) in list(self._late.items()):
            if step > processed_step:
                break
            del self._late[request_id]
            self.start(request_id, is_load=is_load, after_step=None)

    def take_started(self) -> list[str]:
        """Imports from a prefill server that may begin to write."""
        started, self._started = self._started, []
        return started

    def note_arrived(self, requests: Iterable[Request], failed: Iterable[Request]) -> None:
        for request in requests:
            self._memory.finish_import(request.request_id)
            self._arrived.add(request.request_id)
        for request in failed:
            self._arrived.add(request.request_id)
            self._failed.add(request.request_id)

    def has_arrived(self, request: Request) -> bool:
        return request.request_id in self._arrived

    def take_arrived(self, request: Request) -> None:
        """The request can go on behind its import, or begin anew where that has failed."""
        request_id = request.request_id
        self._arrived.remove(request_id)
        if request_id in self._failed:
            self._failed.remove(request_id)
            leftover = self._memory.close(request_id, has_finished=False)
            assert leftover is not None
            self._memory.give_back(leftover)
            request.num_computed = 0
        else:
            self._memory.publish([(request_id, request.num_computed)])
            if request.num_computed == request.num_tokens:
                request.num_computed -= 1  # its logits are needed
        request.status = RequestStatus.PREEMPTED if request.num_preemptions else RequestStatus.WAITING

    def abort(self, request_id: str) -> bool:
        """Whether somebody may still be writing into the request's memory."""
        has_started = self._late.pop(request_id, None) is None
        has_arrived = request_id in self._arrived
        self._arrived.discard(request_id)
        self._failed.discard(request_id)
        return has_started and not has_arrived
