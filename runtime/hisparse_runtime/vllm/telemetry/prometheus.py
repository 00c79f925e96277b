"""The API server's half: records become metrics on vLLM's own /metrics, beside upstream's."""

from typing import Any

from prometheus_client import REGISTRY, Counter, Gauge
from vllm.distributed.kv_transfer.kv_connector.v1.hisparse.stats import (  # type: ignore[import-not-found]  # vLLM's environment
    HiSparsePromMetrics,
)

from hisparse_runtime.vllm.telemetry import catalogue
from hisparse_runtime.vllm.telemetry.catalogue import Family
from hisparse_runtime.vllm.telemetry.guard import Guard
from hisparse_runtime.vllm.telemetry.stats import RECORDS

_GIB = 1 << 30
_COUNTED = (*catalogue.EVENTS, *catalogue.HOT_ROWS.values())


class TelemetryPromMetrics(HiSparsePromMetrics):  # type: ignore[misc]  # untyped without vLLM
    """One for all engines of an API server. What fails here costs our metrics, never upstream's."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._guard = Guard()
        self._labels = per_engine_labelvalues
        self._num_workers = 1
        self._gauges: dict[str, Any] = {}
        self._counters: dict[str, Any] = {}
        self._guard.run(_forget, {family.name for family in (*catalogue.LEVELS, *_COUNTED, catalogue.TELEMETRY_ERRORS)})
        self._guard.run(self._add_counter, catalogue.TELEMETRY_ERRORS, metric_types, labelnames)
        self._guard.run(self._register, vllm_config, metric_types, labelnames)
        self._count_errors(*per_engine_labelvalues)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """One step's payload of one engine."""
        super().observe(transfer_stats_data, engine_idx)
        self._guard.run(self._observe_records, transfer_stats_data, engine_idx)
        self._guard.run(self._observe_rows, transfer_stats_data, engine_idx)
        self._count_errors(engine_idx)

    def _register(self, vllm_config: Any, metric_types: dict[Any, Any], labelnames: list[str]) -> None:
        self._num_workers = vllm_config.parallel_config.world_size
        for family in catalogue.LEVELS:
            metric = metric_types[Gauge](
                name=family.name,
                documentation=family.documentation,
                labelnames=[*labelnames, *family.label_names],
                multiprocess_mode="mostrecent",
            )
            self._add(self._gauges, family, metric)
        for family in _COUNTED:
            self._add_counter(family, metric_types, labelnames)
        host_pool_gib = vllm_config.kv_transfer_config.kv_connector_extra_config.get("host_pool_gib", 0)
        for engine in self._labels:
            self._start(engine, host_pool_bytes=float(host_pool_gib) * _GIB)

    def _add_counter(self, family: Family, metric_types: dict[Any, Any], labelnames: list[str]) -> None:
        metric = metric_types[Counter](name=family.name, documentation=family.documentation, labelnames=labelnames)
        self._add(self._counters, family, metric)

    def _add(self, metrics: dict[str, Any], family: Family, metric: Any) -> None:
        """One child for each engine."""
        for key, labels in family.series.items():
            metrics[key] = {engine: (metric, [*values, *labels.values()]) for engine, values in self._labels.items()}

    def _start(self, engine: int, *, host_pool_bytes: float) -> None:
        """An engine sends nothing before its first step, and these are true until then. Other levels stay absent."""
        for key in self._counters:
            self._count(key, engine, 0)
        for family in catalogue.LEVELS[:2]:
            for key in family.series:
                self._set(key, engine, 0)
        self._set("host_capacity_bytes", engine, host_pool_bytes)
        self._set("host_used_bytes", engine, 0)

    def _count_errors(self, *engines: int) -> None:
        """Of this process; those of an engine core come in its records."""
        if num_errors := self._guard.take_errors():
            for engine in engines:
                self._guard.run(self._count, "telemetry_errors", engine, num_errors)

    def _observe_records(self, payload: dict[str, Any], engine: int) -> None:
        for record in payload.get(RECORDS, ()):
            for key, value in record.items():
                if key in self._gauges:
                    self._set(key, engine, value)
                else:
                    self._count(key, engine, value)

    def _observe_rows(self, payload: dict[str, Any], engine: int) -> None:
        """Each rank of a replica counts for itself, and all select the same rows."""
        for name, family in catalogue.HOT_ROWS.items():
            (key,) = family.series
            if rows := payload.get(name):
                self._count(key, engine, sum(rows) / self._num_workers)

    def _set(self, key: str, engine: int, value: float) -> None:
        metric, labels = self._gauges[key][engine]
        metric.labels(*labels).set(value)

    def _count(self, key: str, engine: int, number: float) -> None:
        metric, labels = self._counters[key][engine]
        metric.labels(*labels).inc(number)


def _forget(names: set[str]) -> None:
    """Metrics of an engine that this process had before, as vLLM does with its own (`unregister_vllm_metrics`)."""
    for collector in list(REGISTRY._collector_to_names):  # noqa: SLF001  there is no public way
        if getattr(collector, "_name", None) in names:
            REGISTRY.unregister(collector)
