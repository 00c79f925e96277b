"""An existing cluster, named by a kubectl context, in place of the demo's own."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.process import run


class ContextCluster:
    """What the demo needs of a cluster, by the programs that a person has: kubectl, helm, and kind or minikube to load images."""

    def __init__(self, context: str) -> None:
        self.context = context
        for program in ("kubectl", "helm"):
            if shutil.which(program) is None:
                raise BootstrapError(
                    f"{program} is not on the PATH: install it, or run the demo without CONTEXT to use a cluster of its own"
                )

    def kubectl(self, *arguments: str, input: str = "") -> str:  # noqa: A002 - subprocess's name for it
        return run(["kubectl", "--context", self.context, *arguments], stdin=input)

    def helm(self, *arguments: str) -> str:
        return run(["helm", "--kube-context", self.context, *arguments])

    def load(self, *archives: Path) -> None:
        """Into kind's or minikube's nodes; any other cluster pulls from a registry."""
        for archive in archives:
            if self.context.startswith("kind-"):
                run(["kind", "load", "image-archive", str(archive), "--name", self.context.removeprefix("kind-")])
            elif self.context == "minikube":
                run(["minikube", "image", "load", str(archive)])
            else:
                raise BootstrapError(
                    f"context {self.context!r} is neither kind nor minikube, so images cannot be loaded into its nodes:"
                    " push them to a registry that it reaches and name them:"
                    " make demo CONTEXT=... OPERATOR_IMAGE=registry/operator:tag ENGINE_IMAGE=registry/engine:tag"
                )

    @contextmanager
    def service_port(self, *, namespace: str, service: str, port: int) -> Iterator[int]:
        """A local port that reaches the Service (one pod of it) for as long as the block runs."""
        command = ["kubectl", "--context", self.context, "-n", namespace, "port-forward", f"service/{service}", f":{port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+)", first)
            if not found:
                raise BootstrapError(f"{' '.join(command)} did not start: {first.strip() or f'exit code {process.wait()}'}")
            try:
                yield int(found.group(1))
            finally:
                process.terminate()
