"""An order where vLLM has none. Sets of request ids are iterated in another order in each process, and a decision hangs on it.

- Requests whose copies complete in the same output publish their pages one after the other; of two with the same content, the
  first keeps its host block, and the last one's GPU copy is found by prefix hits. Here: in the order of their transfers.
- Connectors go through requests that finished. Here: in the order in which they finished.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any


class InOrder(dict[Any, None]):
    """A set that keeps the order of insertion, as far as HiSparse's coordinator uses sets."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(dict.fromkeys(items))

    def add(self, item: Any) -> None:
        """As of a set."""
        self[item] = None

    def discard(self, item: Any) -> None:
        """As of a set."""
        self.pop(item, None)

    def update(self, items: Iterable[Any]) -> None:  # type: ignore[override]  # a set's, not a dict's
        """As of a set."""
        super().update(dict.fromkeys(items))


def keep_order(scheduler: Any) -> None:
    """Before the scheduler's first step."""
    import_module("vllm.v1.hisparse.coordinator").__dict__["set"] = InOrder
    if scheduler.connector is None:
        return
    finished: list[str] = []
    free, build = scheduler._free_request, scheduler.connector.build_connector_meta

    def free_noted(request: Any, *arguments: Any, **keywords: Any) -> Any:
        finished.append(request.request_id)
        return free(request, *arguments, **keywords)

    def build_in_order(output: Any) -> Any:
        output.finished_req_ids = InOrder(name for name in finished if name in output.finished_req_ids)
        finished.clear()
        return build(output)

    scheduler._free_request = free_noted
    scheduler.connector.build_connector_meta = build_in_order
