"""API objects reduced to what the operator reads of them: with thousands of pods 550 bytes each are affordable, 14 kB are not."""

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from hisparse_operator.planning.facts import NodeFacts, PodRequest, Taint
from hisparse_operator.resources.names import DEPLOYMENT_LABEL, PLAN_ANNOTATION, RENDERED_ANNOTATION
from hisparse_operator.resources.service import HTTP_PORT
from hisparse_runtime.vllm.pod_plan import STATUS_PORT, STATUS_PORT_NAME

_GPU = "nvidia.com/gpu"
_MESSAGE_LIMIT = 1000
_ON_ITS_WAY = frozenset({None, "ContainerCreating", "PodInitializing"})
_BACK_OFF = "CrashLoopBackOff"
# Endings whose reason says no more than that there was one.
# How the first process of a vLLM pod explains an end, refusals of preflight included.
_EXPLAINED = re.compile(r"(?P<reason>[A-Z][A-Za-z]{2,62}): (?P<text>.+)", re.DOTALL)
_PLAIN_ENDINGS = frozenset({"Error", "Completed"})


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod. `owner` is the key of its HiSparseDeployment, or None for a stranger, of which only the request matters."""

    request: PodRequest | None  # None once the pod is finished, or before it has a node
    owner: str | None
    name: str
    ip: str
    ready: bool
    deleting: bool
    unschedulable: str  # the scheduler's words, empty when it has a node or was not looked at yet
    trouble: "Trouble | None"
    restarts: int
    report_port: int  # where it tells its residency


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a container does not run: `reason` as Kubernetes names it, `detail` for a person."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """The Deployment of one HiSparseDeployment, as it stands in the cluster."""

    owner_uid: str
    generation: int
    observed_generation: int
    replicas: int
    updated: int
    ready: int
    rendered_hash: str
    plan: str  # JSON of the settled plan, as the operator left it


def slim_node(node: Mapping[str, Any]) -> NodeFacts:
    spec = node.get("spec", {})
    status = node.get("status", {})
    allocatable = status.get("allocatable", {})
    return NodeFacts(
        name=node["metadata"]["name"],
        ready=_condition(status, "Ready").get("status") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        labels=tuple(sorted(node["metadata"].get("labels", {}).items())),
        taints=tuple(Taint(taint["key"], taint.get("value", ""), taint["effect"]) for taint in spec.get("taints", [])),
        allocatable_memory_bytes=_amount(allocatable, "memory"),
        allocatable_gpus=_amount(allocatable, _GPU),
    )


def slim_pod(pod: Mapping[str, Any]) -> PodFacts:
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    name = metadata.get("labels", {}).get(DEPLOYMENT_LABEL)
    owner = f"{metadata['namespace']}/{name}" if name else None
    finished = status.get("phase") in {"Succeeded", "Failed"}
    node = spec.get("nodeName")
    request = None
    if node and not finished:
        request = PodRequest(sys.intern(node), _effective_request(spec, "memory"), _effective_request(spec, _GPU), owner)
    if owner is None:
        return PodFacts(
            request, None, "", "", ready=False, deleting=False, unschedulable="", trouble=None, restarts=0, report_port=0
        )
    scheduled = _condition(status, "PodScheduled")
    containers = status.get("containerStatuses", [])
    report_port = _report_port(spec)
    troubles = [_trouble(container, explains_endings=report_port == STATUS_PORT) for container in containers]
    return PodFacts(
        request,
        owner,
        metadata["name"],
        status.get("podIP", ""),
        ready=_condition(status, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        unschedulable=scheduled.get("message", "")[:_MESSAGE_LIMIT] if scheduled.get("status") == "False" else "",
        trouble=next((trouble for trouble in troubles if trouble), None),
        restarts=sum(container.get("restartCount", 0) for container in containers),
        report_port=report_port,
    )


def slim_deployment(deployment: Mapping[str, Any]) -> DeploymentFacts:
    metadata, status = deployment["metadata"], deployment.get("status", {})
    annotations = metadata.get("annotations", {})
    owner = next((reference["uid"] for reference in metadata.get("ownerReferences", []) if reference.get("controller")), "")
    return DeploymentFacts(
        owner_uid=owner,
        generation=metadata["generation"],
        observed_generation=status.get("observedGeneration", 0),
        replicas=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        rendered_hash=annotations.get(RENDERED_ANNOTATION, ""),
        plan=annotations.get(PLAN_ANNOTATION, ""),
    )


def slim_object(body: dict[str, Any]) -> dict[str, Any]:
    """A HiSparseDeployment whole, but for field owners and version, which change without a difference to us."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in {"managedFields", "resourceVersion"}}
    return {**body, "metadata": metadata}


def _trouble(container: Mapping[str, Any], *, explains_endings: bool) -> Trouble | None:
    """Why this container is not running, or ended the last time while it has not become ready since.

    During a second attempt `state` is running and the reason stands only in `lastState`, so both are read.
    """
    if container.get("ready"):
        return None
    waiting = container.get("state", {}).get("waiting", {})
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
    obstacle = waiting.get("reason")
    # A missing image keeps it from starting now, however it ended before; back-off only follows from an ending.
    if obstacle not in _ON_ITS_WAY and (obstacle != _BACK_OFF or not ended):
        return Trouble(obstacle, waiting.get("message", "")[:_MESSAGE_LIMIT])
    if not ended:
        return None
    said = ended.get("message", "").strip()[:_MESSAGE_LIMIT]
    reason = ended.get("reason", "Error")
    if explains_endings and reason in _PLAIN_ENDINGS and (explained := _EXPLAINED.match(said)):
        return Trouble(explained["reason"], explained["text"])
    # The same reason while it waits and while the next attempt runs: a condition that alternates tells less.
    if reason in _PLAIN_ENDINGS and container.get("restartCount", 0) > 0:
        reason = _BACK_OFF
    return Trouble(reason, f"exit code {ended.get('exitCode')}" + (f": {said}" if said else ""))


def _report_port(spec: Mapping[str, Any]) -> int:
    """A vLLM pod has a port of its own for that, beside the model's."""
    ports = [port for container in spec.get("containers", []) for port in container.get("ports", [])]
    return next((port["containerPort"] for port in ports if port.get("name") == STATUS_PORT_NAME), HTTP_PORT)


def _condition(status: Mapping[str, Any], condition_type: str) -> Mapping[str, Any]:
    return next((condition for condition in status.get("conditions", []) if condition["type"] == condition_type), {})


def _effective_request(spec: Mapping[str, Any], resource: str) -> int:
    """What the scheduler counts for a pod: containers and sidecars together, or the greediest init container, plus overhead."""
    containers = sum(_request(container, resource) for container in spec.get("containers", []))
    sidecars = 0
    greediest_init = 0
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            sidecars += _request(container, resource)
        else:
            greediest_init = max(greediest_init, sidecars + _request(container, resource))
    overhead = _amount(spec.get("overhead", {}), resource)
    whole = spec.get("resources", {}).get("requests", {})
    if resource in whole:  # a request of the pod as such replaces those of its containers
        return _amount(whole, resource) + overhead
    return max(containers + sidecars, greediest_init) + overhead


def _request(container: Mapping[str, Any], resource: str) -> int:
    return _amount(container.get("resources", {}).get("requests", {}), resource)


def _amount(amounts: Mapping[str, Any], resource: str) -> int:
    whole: int = math.ceil(parse_quantity(amounts.get(resource, "0")))
    return whole
