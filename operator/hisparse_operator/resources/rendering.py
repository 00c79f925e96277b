"""All children of one HiSparseDeployment."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hisparse_operator.api import API_VERSION, KIND, HiSparseDeployment
from hisparse_operator.planning import Plan
from hisparse_operator.resources.config_map import config_map
from hisparse_operator.resources.deployment import deployment
from hisparse_operator.resources.engine_images import EngineImages
from hisparse_operator.resources.names import RENDERED_ANNOTATION, labels
from hisparse_operator.resources.service import service


@dataclass(frozen=True, slots=True)
class Child:
    """One object and where it is applied."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rendered:
    """Children in the order in which they are applied: the Deployment, which carries the hash of all, comes last."""

    children: tuple[Child, ...]
    hash: str


def render(owner: HiSparseDeployment, *, plan: Plan, settled: str, images: EngineImages) -> Rendered:
    """ConfigMap, Service and Deployment of `owner`. `settled` is the text that keeps the plan on the Deployment.

    Raises ArgumentsError for a vLLM that cannot be started like that.
    """
    config = config_map(owner, plan=plan)
    image = images.of(owner, plan=plan)
    children = [
        Child(f"/api/v1/namespaces/{owner.namespace}/configmaps/{owner.name}", config),
        Child(f"/api/v1/namespaces/{owner.namespace}/services/{owner.name}", service(owner)),
        Child(
            f"/apis/apps/v1/namespaces/{owner.namespace}/deployments/{owner.name}",
            deployment(owner, plan=plan, settled=settled, image=image, config_hash=digest(config["data"])),
        ),
    ]
    for child in children:
        child.body["metadata"] = {**_metadata(owner), **child.body["metadata"]}
    rendered_hash = digest([child.body for child in children])
    children[-1].body["metadata"]["annotations"][RENDERED_ANNOTATION] = rendered_hash
    return Rendered(tuple(children), rendered_hash)


def digest(value: Any) -> str:
    """Short hash of a JSON value, the same in every process."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _metadata(owner: HiSparseDeployment) -> Mapping[str, Any]:
    reference = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": owner.name, "namespace": owner.namespace, "labels": labels(owner.name), "ownerReferences": [reference]}
