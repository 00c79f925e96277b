"""The container of a vLLM engine: launch as its first process, vLLM's command line as its arguments.

Probes ask launch, not vLLM: vLLM's own /health stays 200 while it drains, and new requests are answered with 500 then.
"""

from typing import Any

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan
from hisparse_operator.planning.vllm_request import vllm_settings
from hisparse_operator.resources.service import HTTP_PORT
from hisparse_runtime.capacity import ENDPOINT_GRACE_SECONDS
from hisparse_runtime.vllm.arguments import ServeArguments, ServeCommand, serve_command
from hisparse_runtime.vllm.pod_plan import FOLDER, PLAN_FILE, STATUS_PORT, STATUS_PORT_NAME, Mode

_LAUNCH = "hisparse_runtime.vllm.launch"
_PROBE_SECONDS = 5


def vllm_container(owner: HiSparseDeployment, *, plan: Plan) -> dict[str, Any]:
    """What is its own of it. Raises ArgumentsError for an engine that cannot be started."""
    assert plan.pod is not None
    command = _command(owner, plan=plan)
    environment = {
        # Python's and vLLM's caches ask for the user's name, and the numeric user has none in /etc/passwd
        "USER": "engine",
        **command.environment,
    }
    return {
        "command": ["python3", "-m", _LAUNCH],
        "args": ["--plan", f"{FOLDER}/{PLAN_FILE}", "--", *command.words],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": STATUS_PORT_NAME, "containerPort": STATUS_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _probe("/startup", period_seconds=_PROBE_SECONDS, failures=-(-plan.startup_seconds // _PROBE_SECONDS)),
        # a busy event loop may miss one; before a stop, the routers have much longer than three
        "readinessProbe": _probe("/ready", period_seconds=2, failures=3),
        "livenessProbe": _probe("/live", period_seconds=10, failures=6),
        # returns once the routers have had their time
        "lifecycle": {"preStop": {"exec": {"command": ["python3", "-m", f"{_LAUNCH}.drain", str(ENDPOINT_GRACE_SECONDS)]}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # The root file system stays writable: NVIDIA's container hook refreshes the linker's cache in it.
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _command(owner: HiSparseDeployment, *, plan: Plan) -> ServeCommand:
    model, engine, pod = owner.spec.model, owner.spec.engine, plan.pod
    vllm = engine.vllm
    assert vllm is not None
    assert pod is not None
    return serve_command(
        ServeArguments(
            model=model.source or model.name,
            settings=vllm_settings(engine, gpu_kv_bytes=plan.gpu_kv_bytes),
            host_pool_gib=plan.host_pool_gib if pod.mode is Mode.ON else None,
            reports_residency=True,
            cpu_bytes_to_use=plan.cpu_bytes_to_use,
            expert_parallel=vllm.expert_parallel and owner.spec.engine.pod_gpus > 1,
            gpu_memory_utilization=vllm.gpu_memory_utilization,
            kv_cache_memory_bytes=plan.gpu_kv_bytes if engine.gpu_kv_cache is not None else None,
            served_model_name=model.name,
            host="0.0.0.0",  # noqa: S104 - a pod serves its pod address
            port=HTTP_PORT,
            # vLLM has one limit for both, and kills an engine core that still unpins: the drain itself is not limited
            shutdown_seconds=pod.drain_seconds + pod.unpin_seconds,
            worker_shutdown_seconds=pod.unpin_seconds,
            extra=tuple(vllm.extra_args),
        )
    )


def _probe(path: str, *, period_seconds: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": STATUS_PORT_NAME},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
