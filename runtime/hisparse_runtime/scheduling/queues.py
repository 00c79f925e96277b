"""Requests that wait: in order of arrival, or by priority."""

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from hisparse_runtime.scheduling.request import Request


class WaitingQueue(Protocol):
    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]:
        """In the order in which they would be popped."""

    def add(self, request: Request) -> None: ...

    def put_back(self, requests: Iterable[Request]) -> None:
        """Before all others, the first of `requests` first."""

    def peek(self) -> Request: ...

    def pop(self) -> Request: ...

    def discard(self, requests: Collection[Request]) -> None: ...


class ArrivalQueue:
    """First come, first served."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def add(self, request: Request) -> None:
        self._requests.append(request)

    def put_back(self, requests: Iterable[Request]) -> None:
        self._requests.extendleft(reversed(list(requests)))

    def peek(self) -> Request:
        return self._requests[0]

    def pop(self) -> Request:
        return self._requests.popleft()

    def discard(self, requests: Collection[Request]) -> None:
        self._requests = deque(request for request in self._requests if request not in requests)


class PriorityQueue:
    """The most urgent first, then by arrival; there is no front to put a request back to."""

    def __init__(self) -> None:
        self._heap: list[Request] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._heap))

    def add(self, request: Request) -> None:
        heapq.heappush(self._heap, request)

    def put_back(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.add(request)

    def peek(self) -> Request:
        return self._heap[0]

    def pop(self) -> Request:
        return heapq.heappop(self._heap)

    def discard(self, requests: Collection[Request]) -> None:
        self._heap = [request for request in self._heap if request not in requests]
        heapq.heapify(self._heap)
