"""The Deployment of the engine pods: what all engines share, around the container of one."""

from typing import Any

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan
from hisparse_operator.resources.embedded import embedded_container
from hisparse_operator.resources.names import CONFIG_ANNOTATION, PLAN_ANNOTATION, labels, selector
from hisparse_operator.resources.vllm import vllm_container
from hisparse_runtime.vllm.pod_plan import FOLDER

# Numeric, and the group too: a group of the image alone does not reach the container everywhere.
_USER = 10001


def deployment(owner: HiSparseDeployment, *, plan: Plan, settled: str, image: str, config_hash: str) -> dict[str, Any]:
    """The Deployment without the parts that all children share. Raises ArgumentsError for an engine that cannot be started."""
    pod = owner.spec.pod
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
                "metadata": {
                    "labels": {**pod.labels, **labels(owner.name)},
                    "annotations": {**pod.annotations, CONFIG_ANNOTATION: config_hash},
                },
                "spec": _pod(owner, plan=plan, image=image),
            },
        },
    }


def _pod(owner: HiSparseDeployment, *, plan: Plan, image: str) -> dict[str, Any]:
    spec, pod = owner.spec, owner.spec.pod
    container = embedded_container(owner, plan=plan) if spec.engine.vllm is None else vllm_container(owner, plan=plan)
    # a volume for /tmp: root file systems are read-only, or another user's. vLLM keeps compiled kernels there, of any size.
    tmp = {"sizeLimit": "64Mi"} if spec.engine.vllm is None else {}
    rendered: dict[str, Any] = {
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
        "containers": [_with_common_parts(container, owner, plan=plan, image=image)],
        "volumes": [
            {"name": "config", "configMap": {"name": owner.name}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(plan.shm_bytes)}},
            {"name": "tmp", "emptyDir": tmp},
            *pod.volumes,
        ],
    }
    if spec.node_selector:
        rendered["nodeSelector"] = dict(spec.node_selector)
    if spec.tolerations:
        rendered["tolerations"] = [toleration.model_dump(by_alias=True, exclude_none=True) for toleration in spec.tolerations]
    as_given = pod.model_dump(
        by_alias=True,
        exclude_defaults=True,
        include={"affinity", "image_pull_secrets", "priority_class_name", "runtime_class_name", "service_account_name"},
    )
    return rendered | as_given


def _with_common_parts(container: dict[str, Any], owner: HiSparseDeployment, *, plan: Plan, image: str) -> dict[str, Any]:
    spec = owner.spec
    gpus = {"nvidia.com/gpu": str(spec.engine.pod_gpus)} if spec.engine.pod_gpus else {}
    memory = str(plan.memory_bytes)
    env = {
        "HOME": {"name": "HOME", "value": "/tmp"},  # noqa: S108 - in a container /tmp is a volume of its own
        **{variable["name"]: variable for variable in container.get("env", [])},
        # what a person gives wins, and a name must not stand there twice
        **{variable.name: variable.model_dump(by_alias=True, exclude_none=True) for variable in spec.pod.env},
    }
    return {
        "name": "engine",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        **container,
        "env": list(env.values()),
        "resources": {
            # Request and limit are one: the pools are counted to the byte, and the node must really have them.
            "requests": {"cpu": str(spec.engine.cpu), "memory": memory, **gpus},
            "limits": {"memory": memory, **gpus},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": FOLDER, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the pools live here on purpose
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - see HOME
            *spec.pod.volume_mounts,
        ],
    }
