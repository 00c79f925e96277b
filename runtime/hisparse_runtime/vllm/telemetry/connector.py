"""vLLM's HiSparseConnector with telemetry. No plugin and no patch: in a connector's configuration, on its own or as a child,

    {"kv_connector": "HiSparseConnector", "kv_connector_module_path": "hisparse_runtime.vllm.telemetry.connector", ...}

The class keeps upstream's name: vLLM finds `host_pool_gib`, and MultiConnector the statistics, by it. HISPARSE_TELEMETRY=off in
the environment of all processes of an engine makes it upstream's own class. Works with vLLM 0.30 to 0.33.
"""

import os
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole  # type: ignore[import-not-found]  # vLLM's environment
from vllm.distributed.kv_transfer.kv_connector.v1.hisparse import connector as upstream  # type: ignore[import-not-found]  # as above
from vllm.v1.request import RequestStatus  # type: ignore[import-not-found]  # as above

from hisparse_runtime.vllm.telemetry.guard import Guard
from hisparse_runtime.vllm.telemetry.levels import sizes_of
from hisparse_runtime.vllm.telemetry.prometheus import TelemetryPromMetrics
from hisparse_runtime.vllm.telemetry.reporter import Reporter
from hisparse_runtime.vllm.telemetry.stats import TelemetryStats

SWITCH = "HISPARSE_TELEMETRY"


class HiSparseConnector(upstream.HiSparseConnector):  # type: ignore[misc]  # untyped without vLLM
    """What upstream does comes first and unguarded, what is ours behind it and guarded."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._guard = Guard()
        self._is_scheduler = role == KVConnectorRole.SCHEDULER
        self.reporter = Reporter(self._guard, running=RequestStatus.RUNNING)
        self._configs = vllm_config, kv_cache_config

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """The engine core's memory, before the first request."""
        super().bind_kv_cache_manager(kv_cache_manager)
        self._guard.run(self._attach)

    def _attach(self) -> None:
        vllm_config, kv_cache_config = self._configs
        steady_state = getattr(upstream, "get_hisparse_steady_state_concurrency", None)  # 0.32
        sizes = sizes_of(
            kv_cache_config,
            num_workers=vllm_config.parallel_config.world_size,
            steady_state_concurrency=None if steady_state is None else steady_state(vllm_config, kv_cache_config),
        )
        self.reporter.attach(self.connector_scheduler.coordinator, self.connector_scheduler.requests, sizes)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Once for each step."""
        metadata = super().build_connector_meta(scheduler_output)
        self.reporter.count_transfers(metadata)
        return metadata

    def get_kv_connector_stats(self) -> Any:
        """At the end of each step, on both sides. A worker's is added to by the engine core's, so it has to be of our class."""
        stats = super().get_kv_connector_stats()
        if self._is_scheduler:
            return TelemetryStats.of(stats, records=self.reporter.records())
        return None if stats is None else TelemetryStats.of(stats)

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        """In the API server, from what the engine core sent."""
        return TelemetryStats() if data is None else TelemetryStats(data=data)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> Any:
        """In the API server."""
        return TelemetryPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


if os.environ.get(SWITCH, "").strip().lower() == "off":
    HiSparseConnector = upstream.HiSparseConnector  # type: ignore[misc]  # vLLM takes what has this name
