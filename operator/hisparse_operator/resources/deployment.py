"""The Deployment of the engine pods: the plan's sizes become arguments, /dev/shm, request and limit."""

from typing import Any

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan
from hisparse_operator.resources.config_map import CONFIG_FILE, CONFIG_FOLDER
from hisparse_operator.resources.names import CONFIG_ANNOTATION, PLAN_ANNOTATION, labels, selector
from hisparse_operator.resources.service import HTTP_PORT

# The embedded image's user; numeric, and the group too: a group of the image alone does not reach the container everywhere.
_USER = 10001
# Time for endpoints to leave the routers before the engine hears SIGTERM, and then for running requests.
_ENDPOINT_GRACE_SECONDS = 5
_DRAIN_SECONDS = 30


def deployment(owner: HiSparseDeployment, *, plan: Plan, settled: str, engine_image: str, config_hash: str) -> dict[str, Any]:
    """The Deployment without the parts that all children share."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"annotations": {PLAN_ANNOTATION: settled}},
        "spec": {
            "replicas": owner.spec.replicas,
            "selector": {"matchLabels": selector(owner.name)},
            # GPUs and host memory are taken whole: a surge pod would find neither, and the roll-out would wait for ever.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": 2 * plan.startup_seconds,
            "template": {
                "metadata": {"labels": labels(owner.name), "annotations": {CONFIG_ANNOTATION: config_hash}},
                "spec": _pod(owner, plan=plan, image=owner.spec.engine.image or engine_image),
            },
        },
    }


def _pod(owner: HiSparseDeployment, *, plan: Plan, image: str) -> dict[str, Any]:
    spec = owner.spec
    pod = {
        "automountServiceAccountToken": False,
        # A Service named like an engine's own variable prefix must not reach its environment.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": plan.termination_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(owner, plan=plan, image=image)],
        "volumes": [
            {"name": "config", "configMap": {"name": owner.name}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(plan.shm_bytes)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }
    if spec.node_selector:
        pod["nodeSelector"] = dict(spec.node_selector)
    if spec.tolerations:
        pod["tolerations"] = [toleration.model_dump(by_alias=True, exclude_none=True) for toleration in spec.tolerations]
    return pod


def _container(owner: HiSparseDeployment, *, plan: Plan, image: str) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": str(owner.spec.engine.gpus)} if owner.spec.engine.gpus else {}
    memory = str(plan.memory_bytes)
    return {
        "name": "engine",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["hisparse", "serve"],
        "args": _arguments(owner, plan=plan),
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - a path in the container, where /tmp is a volume of its own
        "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "resources": {
            # Request and limit are one: the pools are counted to the byte, and the node must really have them.
            "requests": {"cpu": str(owner.spec.engine.cpu), "memory": memory, **gpus},
            "limits": {"memory": memory, **gpus},
        },
        "startupProbe": _probe(period_seconds=1, failures=plan.startup_seconds),
        "readinessProbe": _probe(period_seconds=2, failures=2),
        "livenessProbe": _probe(period_seconds=10, failures=6),
        "lifecycle": {"preStop": {"sleep": {"seconds": _ENDPOINT_GRACE_SECONDS}}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the pools live here on purpose
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - see HOME
        ],
    }


def _arguments(owner: HiSparseDeployment, *, plan: Plan) -> list[str]:
    engine = owner.spec.engine
    options: dict[str, int | float | str] = {
        "--model-config": f"{CONFIG_FOLDER}/{CONFIG_FILE}",
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
