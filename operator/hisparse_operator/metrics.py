"""The operator's own Prometheus metrics. Engine metrics are never re-exported under their own names."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

RECONCILE_SECONDS = Histogram(
    "hisparse_operator_reconcile_duration_seconds",
    "Time of one reconciliation.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter(
    "hisparse_operator_reconcile_errors_total", "Reconciliations that failed and come again.", ["reason"], registry=REGISTRY
)
API_REQUESTS = Counter(
    "hisparse_operator_api_requests_total",
    "Requests to the Kubernetes API, watches left out.",
    ["verb", "code"],
    registry=REGISTRY,
)
SCRAPES = Counter("hisparse_operator_scrapes_total", "Scrapes of engine pods.", ["outcome"], registry=REGISTRY)
QUEUE_LENGTH = Gauge("hisparse_operator_queue_length", "Objects that wait for reconciliation.", registry=REGISTRY)
OBJECTS = Gauge("hisparse_operator_objects", "HiSparseDeployments in the cache.", registry=REGISTRY)

HOST_POOL_BYTES = Gauge(
    "hisparse_deployment_host_pool_bytes",
    "Capacity of the host pools of all reporting pods.",
    ["namespace", "name"],
    registry=REGISTRY,
)
HOST_POOL_USED_BYTES = Gauge(
    "hisparse_deployment_host_pool_used_bytes", "Host pool that running requests hold.", ["namespace", "name"], registry=REGISTRY
)
CONDITION = Gauge(
    "hisparse_deployment_condition",
    "1 when the condition is True, 0 when False, -1 when Unknown.",
    ["namespace", "name", "type"],
    registry=REGISTRY,
)


def forget_deployment(*, namespace: str, name: str, condition_types: tuple[str, ...]) -> None:
    """Series of an object end with the object."""
    for gauge in (HOST_POOL_BYTES, HOST_POOL_USED_BYTES):
        gauge.remove(namespace, name)
    for condition_type in condition_types:
        CONDITION.remove(namespace, name, condition_type)
