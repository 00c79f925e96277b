"""A Kubernetes for the test run, the CRD in it, and, for those who ask, the operator installed from its chart and images."""

import os
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.kit import OPERATOR_NAMESPACE, Cluster
from tools.devcluster import DevCluster
from tools.images import build_images


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real one-node cluster for the whole test run, with eight GPUs on paper and the CRD installed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a cluster in namespaces of its own needs Linux and root")
    box = DevCluster(name=f"test-{os.getpid()}")
    try:
        box.up()
        box.set_gpus(8)
        running = Cluster(box)
        running.install_crd()
        yield running
    finally:
        box.down()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own; its objects go with it."""
    name = cluster.new_namespace()
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def operator(cluster: Cluster) -> Cluster:
    """The cluster with the operator running in it as in production: own image, own service account, RBAC on."""
    images = build_images()
    cluster.box.load(*(image.archive for image in images.values()))
    repository, _, tag = images["operator"].reference.rpartition(":")
    cluster.box.helm(
        *("upgrade", "--install", "hisparse", "helm/hisparse-operator", "--namespace", OPERATOR_NAMESPACE, "--create-namespace"),
        *(
            "--set",
            f"image.repository={repository}",
            "--set",
            f"image.tag={tag}",
            "--set",
            f"engine.embeddedImage={images['embedded'].reference}",
        ),
        *("--set", "crds.install=false", "--wait", "--timeout", "3m"),
    )
    return cluster
