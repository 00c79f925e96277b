"""What vLLM's workers say to its scheduler after a step, in vLLM's own types."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

PACKAGE = "vllm.distributed.kv_transfer.kv_connector.v1"


class Worker:
    """Of a scheduler and its connectors: HiSparse's, the offloading one, or none of them."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._outputs = import_module("vllm.v1.outputs")
        one = scheduler.connector
        self._connectors = list(getattr(one, "_connectors", [one]))
        self.hisparse = self._connector("HiSparseConnector")
        self.offloading = self._connector("OffloadingConnector")

    def _connector(self, name: str) -> Any:
        return next((item for item in self._connectors if type(item).__name__ == name), None)

    def metadata(self, output: Any, connector: Any) -> Any:
        """A connector's own part of what the scheduler sent; None without the connector."""
        if connector is None:
            return None
        one = output.kv_connector_metadata
        parts = zip(self._connectors, getattr(one, "metadata", [one]), strict=True)
        return next(part for owner, part in parts if owner is connector)

    def sent(self, output: Any) -> list[int]:
        """Ids of the page transfers that begin with a step."""
        metadata = self.metadata(output, self.hisparse)
        return [] if metadata is None else [item.transfer_id for item in metadata.command.page_transfers]

    def answer(
        self,
        output: Any,
        tokens: Mapping[str, Sequence[int]],
        *,
        completed: Iterable[int],
        completed_jobs: Iterable[int] = (),
        arrived: Iterable[str] = (),
    ) -> Any:
        """A ModelRunnerOutput: new tokens by request, ids of finished transfers and jobs, requests whose KV has come."""
        names = list(output.num_scheduled_tokens)
        sent = dict.fromkeys(self.sent(output), 1)
        return self._outputs.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[list(tokens[name]) for name in names],
            kv_connector_output=self._said(sent, dict.fromkeys(completed, 1), dict.fromkeys(completed_jobs, 1), set(arrived)),
        )

    def drafts(self, output: Any, number: int) -> Any:
        """So many proposed tokens for every request of a step."""
        names = list(output.num_scheduled_tokens)
        return self._outputs.DraftTokenIds(names, [[0] * number for _ in names])

    def _said(self, sent: dict[int, int], completed: dict[int, int], completed_jobs: dict[int, int], arrived: set[str]) -> Any:
        if self._scheduler.connector is None:
            return None
        said: dict[int, Any] = {}
        if self.hisparse is not None and (sent or completed):
            metadata = import_module(f"{PACKAGE}.hisparse.connector").HiSparseConnectorWorkerMetadata
            said[id(self.hisparse)] = metadata(sent, completed)
        if self.offloading is not None and completed_jobs:
            metadata = import_module(f"{PACKAGE}.offloading.common").OffloadingWorkerMetadata
            said[id(self.offloading)] = metadata(completed_jobs=completed_jobs)
        parts = [said.get(id(connector)) for connector in self._connectors]
        one = parts[0]
        if said and self._connectors != [self._scheduler.connector]:
            one = import_module(f"{PACKAGE}.multi_connector").MultiKVConnectorWorkerMetadata(metadata=tuple(parts))
        return self._outputs.KVConnectorOutput(finished_recving=arrived or None, kv_connector_worker_meta=one)
