"""A vLLM's /metrics page as the JSON of /hisparse/residency: what the embedded engine answers, and the operator reads. Pure.

With `telemetry.connector` the numbers are its own. Without HiSparse every running request is fully resident by definition, there
is no host pool, and the device pool follows from vLLM's own gauges. Where requests are under HiSparse without the connector, or
with it switched off, is not on the page: that is an error, not a guess. Of an offload tier vLLM tells what transfers hold; what
is stored there and can be dropped counts as free, as in the other pools.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from hisparse_runtime.vllm.telemetry import catalogue

SCHEMA = "hisparse.dev/residency/v1"
MAX_PAGE_CHARACTERS = 8 << 20
MAX_COUNT = 1 << 53  # what the operator accepts

_ALL_ENGINES = ""
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_FINISHED = "vllm:request_success_total"
_DEVICE_USE = "vllm:kv_cache_usage_perc"
_DEVICE_CONFIG = "vllm:cache_config_info"
_OFFLOAD_USE = "vllm:kv_offload_cpu_cache_usage_perc"
_OFFLOAD_CONFIG = "vllm:kv_offload_config_info"  # from 0.33 on
_HISPARSE = "vllm:hisparse_cache_hits_total"
_OURS = {
    *(family.name for family in catalogue.LEVELS),
    *(f"{family.name}_total" for family in (*catalogue.EVENTS, *catalogue.HOT_ROWS.values())),
}
_WANTED = _OURS | {_RUNNING, _WAITING, _FINISHED, _DEVICE_USE, _DEVICE_CONFIG, _OFFLOAD_USE, _OFFLOAD_CONFIG, _HISPARSE}


class MetricsError(ValueError):
    """A page that does not say what a report needs; the text says what is missing, and the next step."""


@dataclass(slots=True)
class _Page:
    """Samples of wanted metrics: labels and value."""

    samples: dict[str, list[tuple[Mapping[str, str], float]]] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.samples

    def of(self, name: str) -> list[tuple[Mapping[str, str], float]]:
        return self.samples.get(name, [])

    def total(self, name: str, **labels: str) -> float:
        """Over engines, of the series with these labels."""
        return sum(value for found, value in self.of(name) if all(found.get(key) == labels[key] for key in labels))

    def by_engine(self, name: str) -> dict[str, float]:
        result: dict[str, float] = {}
        for labels, value in self.of(name):
            engine = labels.get("engine", _ALL_ENGINES)
            result[engine] = result.get(engine, 0) + value
        return result


def residency_of_metrics(
    text: str,
    *,
    model: str,
    version: str,
    uptime_seconds: float,
    device_block_bytes: int = 0,
    offload_bytes: int = 0,
) -> dict[str, Any]:
    """Several `engine` labels (data parallel) are summed up. MetricsError for a page that is too long, no page, or not vLLM's.

    vLLM does not always tell sizes: `device_block_bytes`, of one block of its GPU pool, is used without HiSparse where the page
    has no pool size, and `offload_bytes`, of each engine's offload tier, before 0.33. A pool of unknown size is one of 0 bytes.
    """
    page = _read(text)
    if _RUNNING not in page:
        raise MetricsError(f"no {_RUNNING} among {len(text)} characters: not vLLM's /metrics, or --disable-log-stats was given")
    has_residency = catalogue.REQUESTS in page
    if _HISPARSE in page and not has_residency:
        raise MetricsError(
            f"HiSparse without {catalogue.REQUESTS}: where requests are is not known; next step: start vLLM with"
            ' "kv_connector_module_path": "hisparse_runtime.vllm.telemetry.connector" and without HISPARSE_TELEMETRY=off'
        )
    running = int(_whole(page.total(_RUNNING)))
    residency = {"full": running, "mixed": 0, "none": 0}
    device_pool = _ordinary_device_pool(page, block_bytes=device_block_bytes)
    if has_residency:
        residency = {name: _whole(page.total(catalogue.REQUESTS, residency=name)) for name in catalogue.RESIDENCIES}
        device_pool = _pool(page, "device")
    return {
        "schema": SCHEMA,
        "engine": {"type": "VLLM", "version": version, "model": model, "uptime_seconds": round(uptime_seconds, 3)},
        "requests": {
            "running": sum(residency.values()),  # of the same moment as the classes
            "waiting": _whole(page.total(_WAITING)),
            **residency,
            "finished": _whole(page.total(_FINISHED)),
        },
        "pages": {state: _whole(page.total(catalogue.PAGES, state=state)) for state in catalogue.PAGE_STATES},
        "host_pool": _pool(page, "host"),
        "device_pool": device_pool,
        "offload": _offload_tier(page, size_bytes=offload_bytes),
        "hot": {
            "regions_in_use": _whole(page.total(catalogue.HOT_REGIONS)),
            "hits": _whole(page.total(f"{catalogue.HOT_HITS}_total")),
            "misses": _whole(page.total(f"{catalogue.HOT_MISSES}_total")),
            "host_to_device_bytes": _whole(page.total(f"{catalogue.HOST_TO_DEVICE_BYTES}_total")),
        },
        "mirror_bytes": _whole(page.total(f"{catalogue.WRITTEN_BACK_BYTES}_total")),
    }


def _read(text: str) -> _Page:
    """Only lines that are wanted are parsed: a page has hundreds of histogram buckets."""
    if len(text) > MAX_PAGE_CHARACTERS:
        raise MetricsError(f"a page of {len(text)} characters, more than {MAX_PAGE_CHARACTERS}: not vLLM's /metrics")
    page = _Page()
    try:
        for family in text_string_to_metric_families("\n".join(_wanted_lines(text)) + "\n"):
            for sample in family.samples:
                page.samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    except (ValueError, IndexError) as error:  # what the parser raises on lines that it cannot split
        raise MetricsError(f"not in Prometheus' text format: {error}") from error
    return page


def _wanted_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in _WANTED:
            yield line


def _pool(page: _Page, pool: str) -> dict[str, int]:
    """As the connector measured it."""
    capacity, used = (_whole(page.total(catalogue.POOL_BYTES, pool=pool, kind=kind)) for kind in catalogue.POOL_KINDS)
    return {"capacity_bytes": capacity, "used_bytes": used}


def _ordinary_device_pool(page: _Page, *, block_bytes: int) -> dict[str, int]:
    """Of an engine without HiSparse. The null block is nobody's, and vLLM's usage does not count it either."""
    capacities: dict[str, float] = {}
    for labels, _ in page.of(_DEVICE_CONFIG):
        num_blocks = _number(labels.get("num_gpu_blocks"))
        pool_bytes = _number(labels.get("kv_cache_memory_bytes")) or num_blocks * block_bytes
        if num_blocks:
            capacities[labels.get("engine", _ALL_ENGINES)] = pool_bytes / num_blocks * (num_blocks - 1)
    return _used_of(capacities, page.by_engine(_DEVICE_USE))


def _offload_tier(page: _Page, *, size_bytes: int) -> dict[str, int]:
    used = page.by_engine(_OFFLOAD_USE)
    capacities: dict[str, float] = dict.fromkeys(used, size_bytes)
    for labels, _ in page.of(_OFFLOAD_CONFIG):
        if told_bytes := _number(labels.get("cpu_kv_cache_size_bytes")):
            capacities[labels.get("engine", _ALL_ENGINES)] = told_bytes
    return _used_of(capacities, used)


def _used_of(capacities_bytes: Mapping[str, float], used_parts: Mapping[str, float]) -> dict[str, int]:
    """`used_parts` from 0 to 1, by engine."""
    used = sum(size * min(max(used_parts.get(engine, 0.0), 0.0), 1.0) for engine, size in capacities_bytes.items())
    return {"capacity_bytes": _whole(sum(capacities_bytes.values())), "used_bytes": _whole(used)}


def _number(label: str | None) -> float:
    """A label is any text, "None" among others."""
    try:
        value = float(label or 0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0


def _whole(value: float) -> int:
    """True counts are averages over workers, so not always whole."""
    return min(max(round(value), 0), MAX_COUNT) if math.isfinite(value) else 0
