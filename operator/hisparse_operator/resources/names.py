"""Labels and annotations of the children. Selectors are immutable in Kubernetes, so the first two never change."""

from hisparse_operator.api import GROUP

DEPLOYMENT_LABEL = f"{GROUP}/deployment"
COMPONENT_LABEL = "app.kubernetes.io/component"

PLAN_ANNOTATION = f"{GROUP}/plan"
"""On the Deployment: the settled plan and the hash of the spec that it was made for, as JSON."""
RENDERED_ANNOTATION = f"{GROUP}/rendered-hash"
"""On the Deployment: hash over all children. It is applied last, so it proves that the others were applied."""
CONFIG_ANNOTATION = f"{GROUP}/config-hash"
"""On the pod template: hash of what the ConfigMap mounts, so that a change of it rolls the pods."""

_MANAGED_BY = {"app.kubernetes.io/managed-by": "hisparse-operator", "app.kubernetes.io/part-of": "hisparse"}
MANAGED_SELECTOR = ",".join(f"{name}={value}" for name, value in _MANAGED_BY.items())


def selector(name: str) -> dict[str, str]:
    """The labels that tell the pods of one HiSparseDeployment from all others of its namespace."""
    return {DEPLOYMENT_LABEL: name, COMPONENT_LABEL: "engine"}


def labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "hisparse-engine", "app.kubernetes.io/instance": name, **_MANAGED_BY, **selector(name)}


def selector_text(name: str) -> str:
    """The same selector as a string, for the scale subresource."""
    return ",".join(f"{label}={value}" for label, value in selector(name).items())
