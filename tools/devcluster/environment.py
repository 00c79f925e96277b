"""Environment variables of programs that work on a cluster, inside and outside of its box."""

import os

from tools.devcluster.layout import Layout
from tools.devcluster.machine import search_path


def inner_environment(layout: Layout) -> dict[str, str]:
    """For everything that runs inside of the box."""
    return {
        **os.environ,
        "PATH": f"{layout.bin}:{search_path()}",
        "KUBECONFIG": str(layout.inner_kubeconfig),
        **client_settings(layout),
    }


def outer_environment(layout: Layout) -> dict[str, str]:
    """For kubectl, helm and other clients on the machine."""
    return {**os.environ, **client_settings(layout), "KUBECONFIG": str(layout.kubeconfig)}


def client_settings(layout: Layout) -> dict[str, str]:
    """kubectl and helm keep their caches with the cluster and read no preferences of the user."""
    return {
        "KUBERC": "off",
        "KUBECACHEDIR": str(layout.folder / "kubectl-cache"),
        "HELM_CACHE_HOME": str(layout.folder / "helm" / "cache"),
        "HELM_CONFIG_HOME": str(layout.folder / "helm" / "config"),
        "HELM_DATA_HOME": str(layout.folder / "helm" / "data"),
    }
