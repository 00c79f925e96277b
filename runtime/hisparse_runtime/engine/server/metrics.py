"""GET /metrics: the engine's snapshot in Prometheus text. Names and labels are upstream's where upstream has the metric."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hisparse_runtime.engine.loop import EngineLoop
from hisparse_runtime.engine.report import Report


class ReportCollector(Collector):
    """Reads one snapshot per scrape, so that the numbers of a scrape belong together."""

    def __init__(self, *, engine: EngineLoop, model_name: str) -> None:
        self._engine = engine
        self._labels = {"model_name": model_name, "engine": "0"}

    def collect(self) -> Iterator[Metric]:
        report = self._engine.report
        for name, documentation, value in _upstream_gauges(report):
            gauge = GaugeMetricFamily(name, documentation, labels=list(self._labels))
            gauge.add_metric(list(self._labels.values()), value)
            yield gauge
        for name, documentation, total in _upstream_counters(report):
            counter = CounterMetricFamily(name, documentation, labels=list(self._labels))
            counter.add_metric(list(self._labels.values()), total)
            yield counter
        yield from _residency(report)


def make_registry(*, engine: EngineLoop, model_name: str) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(ReportCollector(engine=engine, model_name=model_name))
    return registry


def _upstream_gauges(report: Report) -> tuple[tuple[str, str, float], ...]:
    return (
        ("vllm:num_requests_running", "Running requests.", report.running),
        ("vllm:num_requests_waiting", "Requests that are not admitted yet.", report.waiting),
        (
            "vllm:kv_cache_usage_perc",
            "Used part of the device pool; pages that can be handed out count as free.",
            report.device_pool.used_ratio,
        ),
        (
            "vllm:hisparse_host_cache_usage_perc",
            "Used part of the host pool; cached pages count as free.",
            report.host_pool.used_ratio,
        ),
        ("vllm:hisparse_pending_page_transfers", "Page copies that are not acknowledged yet.", report.pending_transfers),
    )


def _upstream_counters(report: Report) -> tuple[tuple[str, str, float], ...]:
    return (
        ("vllm:hisparse_cache_hits", "Selected rows found in hot regions.", report.hits),
        ("vllm:hisparse_cache_misses", "Selected rows copied from the host.", report.misses),
        ("vllm:hisparse_host_to_device_bytes", "Bytes of rows copied from the host.", report.host_to_device_bytes),
        ("vllm:prompt_tokens", "Prompt tokens processed, cached ones included.", report.prompt_tokens),
        ("vllm:generation_tokens", "Tokens generated.", report.generation_tokens),
        ("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", report.prefix_queried_tokens),
        ("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", report.prefix_hit_tokens),
        ("vllm:num_preemptions", "Requests taken off the pools to let others go on.", report.preemptions),
    )


def _residency(report: Report) -> Iterator[Metric]:
    requests = GaugeMetricFamily("hisparse_requests", "Running requests by where their KV is.", labels=["residency"])
    for residency, count in report.residency.items():
        requests.add_metric([residency.value], count)
    yield requests
    pages = GaugeMetricFamily("hisparse_pages", "Pages of running requests by state.", labels=["state"])
    for state, count in report.pages.items():
        pages.add_metric([state.name.lower()], count)
    yield pages
    pools = GaugeMetricFamily("hisparse_pool_bytes", "Pool sizes and use.", labels=["pool", "kind"])
    for pool, use in (("host", report.host_pool), ("device", report.device_pool), ("offload", report.offload)):
        pools.add_metric([pool, "capacity"], use.capacity_bytes)
        pools.add_metric([pool, "used"], use.used_bytes)
    yield pools
