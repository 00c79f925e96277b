"""What travels from the engine core to the API server: upstream's lists, and one of our records."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.hisparse.stats import (  # type: ignore[import-not-found]  # vLLM's environment
    HiSparseKVConnectorStats,
)

from hisparse_runtime.vllm.telemetry.reporter import Record

RECORDS = "hisparse_telemetry"


class TelemetryStats(HiSparseKVConnectorStats):  # type: ignore[misc]  # untyped without vLLM
    """Under MultiConnector the API server rebuilds payloads with upstream's class, which adds up key by key and fails at a key
    that only the later one has. So every payload of an engine core has our key, an empty list as the rule, and none of a worker
    alone: a core whose telemetry is off then never sends it."""

    @classmethod
    def of(cls, upstream: HiSparseKVConnectorStats | None, *, records: list[Record] | None = None) -> "TelemetryStats":
        """`upstream` may be None: nothing to tell. `records`: of an engine core."""
        stats = cls() if upstream is None else cls(data=upstream.data)
        if records is not None:
            stats.data[RECORDS] = records
        return stats

    def aggregate(self, other: Any) -> Any:
        """Adds another payload, a worker's or the engine core's, to this one."""
        if RECORDS in other.data:
            self.data.setdefault(RECORDS, [])
        return super().aggregate(other)

    def is_empty(self) -> bool:
        """An empty payload is not sent: see above."""
        return RECORDS not in self.data and bool(super().is_empty())
