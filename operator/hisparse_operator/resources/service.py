"""The address that requests go to."""

from typing import Any

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.resources.names import selector

HTTP_PORT = 8000


def service(owner: HiSparseDeployment) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {},
        "spec": {
            "selector": selector(owner.name),
            "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def endpoint(*, namespace: str, name: str) -> str:
    """The Service's address inside of the cluster."""
    return f"http://{name}.{namespace}.svc:{HTTP_PORT}"
