"""What stands around vLLM's scheduler on the way of a metric: workers before it, the socket and the API server behind it."""

import pickle
from importlib import import_module
from types import SimpleNamespace
from typing import Any

KV_CONNECTOR = "vllm.distributed.kv_transfer.kv_connector"
NUM_WORKERS = 8
SNAPSHOT_STEPS = 10  # upstream's workers wait for 2,000
SNAPSHOTS = ((90, 10, 6560), (0, 7, 4592))  # hits, misses and bytes of two groups of layers, the same in each worker
WANTED = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:request_success_total",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
)


class Frontend:
    """Listens to a scheduler. Everything that it sends takes vLLM's own way: pickled from the workers, as msgpack to here.

    `scrapes`: after each output that the scheduler processed, what /metrics says, and a recount.
    """

    def __init__(self, engine: Any, coordinator: Any, connector: Any, *, clock_stands: bool) -> None:
        self._scheduler, self._coordinator, self._connector = engine.scheduler, coordinator, connector
        engine.vllm_config.parallel_config.world_size = NUM_WORKERS
        self._config = engine.vllm_config
        children = getattr(self._scheduler.connector, "_connectors", [self._scheduler.connector])
        self._is_child = children != [self._scheduler.connector]
        self._hisparse = next(child for child in children if type(child).__name__ == "HiSparseConnector")
        if clock_stands:
            self._hisparse.reporter.clock = lambda: 0.0
        if not hasattr(self._hisparse, "reporter"):
            _forget_earlier_runs()
        loggers = import_module("vllm.v1.metrics.loggers")
        self._prometheus = loggers.PrometheusStatLogger(self._config, [0])
        self._prometheus.log_engine_initialized()
        self._logging = import_module(f"{KV_CONNECTOR}.v1.metrics").KVConnectorLogging(self._config.kv_transfer_config)
        serial = import_module("vllm.v1.serial_utils")
        self._encoder = serial.MsgpackEncoder()
        self._decoder = serial.MsgpackDecoder(import_module("vllm.v1.engine").EngineCoreOutputs)
        self._update = self._scheduler.update_from_output
        self._scheduler.update_from_output = self._observe
        self._num_outputs = self.num_snapshots = 0
        self.keys: set[str] = set()
        self.scrapes: list[dict[str, Any]] = []

    def _observe(self, step: Any, output: Any) -> Any:
        self._num_outputs += 1
        if self._num_outputs % SNAPSHOT_STEPS == 0:
            self._add_snapshots(output)
        results = self._update(step, output)
        for result in results.values():
            statistics = self._decoder.decode(self._encoder.encode(result)).scheduler_stats
            if statistics is not None:
                self._prometheus.record(statistics, None)
                payload = statistics.kv_connector_stats
                if payload:
                    self._logging.observe(payload)
                    self.keys.update(payload["HiSparseConnector"] if self._is_child else payload)
        self.scrapes.append({"page": self._page(), "recount": recount(self._scheduler, self._coordinator)})
        return results

    def _add_snapshots(self, output: Any) -> None:
        """As `KVOutputAggregator` adds up what workers give."""
        total: Any = None
        for _ in range(NUM_WORKERS):
            snapshot = pickle.loads(pickle.dumps(self._worker_stats()))  # noqa: S301  made here
            if self._is_child:
                multi = import_module(f"{KV_CONNECTOR}.v1.multi_connector").MultiKVConnectorStats
                snapshot = multi(data={"HiSparseConnector": snapshot})
            total = snapshot if total is None else total.aggregate(snapshot)
        self.num_snapshots += 1
        if output.kv_connector_output is None:
            output.kv_connector_output = import_module("vllm.v1.outputs").KVConnectorOutput()
        output.kv_connector_output.kv_connector_stats = total

    def _worker_stats(self) -> Any:
        """By the connector's own method, with a worker that has counted."""
        stats = import_module(f"{KV_CONNECTOR}.v1.hisparse.stats").HiSparseKVConnectorStats()
        for hits, misses, num_bytes in SNAPSHOTS:
            stats.record_snapshot(hits, misses, num_bytes)
        connector = object.__new__(self._connector.HiSparseConnector)
        connector._is_scheduler, connector.connector_scheduler = False, None
        connector.connector_worker = SimpleNamespace(get_kv_connector_stats=lambda: stats)
        return connector.get_kv_connector_stats()

    def _page(self) -> str:
        """The text of /metrics, of what a residency report is made of."""
        client = import_module("prometheus_client")
        registry = client.REGISTRY
        ours = (name for name in registry._names_to_collectors if name.startswith(("hisparse_", "vllm:hisparse_")))
        text: str = client.generate_latest(registry.restricted_registry([*WANTED, *ours])).decode()
        return "".join(line for line in text.splitlines(keepends=True) if line[0] != "#" and "_created" not in line)

    def sizes(self) -> dict[str, Any]:
        """Of the pools, from the plan of the caches."""
        config = self._scheduler.kv_cache_config
        return {
            "host_blocks": config.hisparse_host_num_blocks,
            "host_stride": config.hisparse_host_block_stride,
            "device_blocks": config.num_blocks,
            "device_bytes": max(tensor.size for tensor in config.kv_cache_tensors if not tensor.host_resident),
        }

    def log(self) -> list[str]:
        """What vLLM's periodic log line says of all steps so far."""
        lines: list[str] = []
        self._logging.log(lambda text, *values: lines.append(text % values))
        return lines


def _forget_earlier_runs() -> None:
    """Whose metrics would be on the page of a connector that has none."""
    registry = import_module("prometheus_client").REGISTRY
    for name, collector in list(registry._names_to_collectors.items()):
        if name.startswith("hisparse_") and name in registry._names_to_collectors:
            registry.unregister(collector)


def recount(scheduler: Any, coordinator: Any) -> dict[str, Any]:
    """Every page and block of an engine, looked at one by one."""
    pages = dict.fromkeys(("dirty", "pending", "clean_pinned", "unpinned", "host_only"), 0)
    classes = {"running": len(scheduler.running), "full": 0, "mixed": 0, "none": 0}
    for request in scheduler.running:
        states = _page_states(coordinator, request.request_id)
        for state in states:
            pages[state] += 1
        residency = "mixed" if set(states) & {"pending", "clean_pinned", "unpinned"} else "none"
        classes[residency if "host_only" in states else "full"] += 1
    num_live = sum(not request.is_finished() for request in scheduler.requests.values())  # aborted imports stay for a while
    names = coordinator.hot_managers[0].req_to_blocks
    return {
        "requests": {**classes, "waiting": num_live - len(scheduler.running)},
        "pages": pages,
        "regions": sum(all(manager.has_hot(name) for manager in coordinator.hot_managers) for name in list(names)),
        "used_host_blocks": _num_held(coordinator.get_host_block_pool()),
        "used_device_blocks": _num_held(coordinator.gpu_pool),
        "watermark": coordinator.transition_watermark,
        "held": len(coordinator.request_states),
        "unacknowledged": len(coordinator.pending_spills),
    }


def _page_states(coordinator: Any, name: str) -> list[str]:
    rows = [
        manager.get_residency_row(name) if hasattr(manager, "get_residency_row") else manager.req_to_blocks.get(name, [])
        for manager in coordinator.resident_managers  # up to 0.31 the block table itself is edited
    ]
    state = coordinator.request_states.get(name)
    result = []
    for page in range(len(rows[0])):
        lost = [row[page].is_null for row in rows]
        if any(lost) != all(lost):
            raise AssertionError(f"groups disagree about page {page} of {name}")
        if all(lost):
            result.append("host_only")
        elif state is None or (page not in state.valid_pages and page not in state.pending_pages):
            result.append("dirty")
        elif page in state.pending_pages:
            result.append("pending")
        else:
            result.append("unpinned" if page in state.unpinned_pages else "clean_pinned")
    return result


def _num_held(pool: Any) -> int:
    return sum(block.ref_cnt > 0 and not block.is_null for block in pool.blocks)
