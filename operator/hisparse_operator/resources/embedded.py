"""The container of the embedded engine: the plan's sizes become arguments."""

from typing import Any

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan
from hisparse_operator.resources.service import HTTP_PORT
from hisparse_runtime.vllm.pod_plan import CONFIG_FILE, FOLDER

# Time for endpoints to leave the routers before the engine hears SIGTERM, and then for running requests.
_ENDPOINT_GRACE_SECONDS = 5
_DRAIN_SECONDS = 30


def embedded_container(owner: HiSparseDeployment, *, plan: Plan) -> dict[str, Any]:
    """What is its own of it."""
    return {
        "command": ["hisparse", "serve"],
        "args": _arguments(owner, plan=plan),
        "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "startupProbe": _probe(period_seconds=1, failures=plan.startup_seconds),
        "readinessProbe": _probe(period_seconds=2, failures=2),
        "livenessProbe": _probe(period_seconds=10, failures=6),
        "lifecycle": {"preStop": {"sleep": {"seconds": _ENDPOINT_GRACE_SECONDS}}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    }


def _arguments(owner: HiSparseDeployment, *, plan: Plan) -> list[str]:
    engine = owner.spec.engine
    options: dict[str, int | float | str] = {
        "--model-config": f"{FOLDER}/{CONFIG_FILE}",
        "--served-model-name": owner.spec.model.name,
        "--host": "0.0.0.0",  # noqa: S104 - a pod serves its pod address
        "--port": HTTP_PORT,
        "--max-model-len": engine.max_model_len,
        "--max-num-seqs": engine.num_seqs,
        "--max-num-batched-tokens": engine.num_batched_tokens,
        "--gpu-kv-bytes": plan.gpu_kv_bytes,
        "--host-pool-gib": plan.host_pool_gib,
        "--cpu-bytes-to-use": plan.cpu_bytes_to_use,
        "--device-buffer-size": plan.device_buffer_rows,
        "--shutdown-timeout": _DRAIN_SECONDS,
    }
    return [text for name, value in options.items() for text in (name, str(value))]


def _probe(*, period_seconds: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
