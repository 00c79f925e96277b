"""The demo's own cluster: tools.devcluster under the name `demo`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.devcluster import DevCluster

NAME = "demo"
_GPUS = 8


class OwnCluster:
    """The same calls as on a ContextCluster."""

    def __init__(self) -> None:
        self.cluster = DevCluster(name=NAME)

    def up(self) -> None:
        self.cluster.up()
        self.cluster.set_gpus(_GPUS)

    def kubectl(self, *arguments: str, input: str = "") -> str:  # noqa: A002 - subprocess's name for it
        return self.cluster.kubectl(*arguments, input=input or None)

    def helm(self, *arguments: str) -> str:
        return self.cluster.helm(*arguments)

    def load(self, *archives: Path) -> None:
        self.cluster.load(*archives)

    @contextmanager
    def service_port(self, *, namespace: str, service: str, port: int) -> Iterator[int]:
        """A local port that reaches the Service; it stays open with the cluster, for the person who tries it next."""
        yield self.cluster.forward(namespace=namespace, service=service, port=port)
