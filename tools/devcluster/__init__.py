"""A real one-node Kubernetes from binaries, in namespaces of its own, for the demo and for tests.

Runs before any virtual environment exists: standard library only. `python3 -m tools.devcluster --help` is the same as a command.
"""

from tools.devcluster.cluster import DevCluster
from tools.devcluster.failure import DevClusterError
from tools.devcluster.machine import DEBIAN_PACKAGES

__all__ = ["DEBIAN_PACKAGES", "DevCluster", "DevClusterError"]
