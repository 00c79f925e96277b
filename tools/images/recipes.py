"""Which images there are, and what each is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """`dockerfile` and `lock` are names in `images/` and `requirements/`. `labels` win over the Dockerfile's."""

    dockerfile: str
    lock: str  # of what pip installs
    labels: Mapping[str, str] = field(default_factory=dict)
    tests_only: str = ""  # why it is of no use to others, and what is


OPERATOR = Recipe(dockerfile="operator", lock="operator")
EMBEDDED = Recipe(dockerfile="embedded", lock="engine")
# Of the wheel's dependencies none is installed: only the build backend is locked.
RUNTIME = Recipe(dockerfile="runtime", lock="build")
# vLLM's own image comes from a registry, and buildah is used without one. The same Dockerfile on this project's Debian gives an
# image in which vLLM can be mounted: tests/cluster/vllm_pod.py makes a pod of it that serves on a CPU.
RUNTIME_TEST = Recipe(
    dockerfile="runtime",
    lock="build",
    labels={
        "org.opencontainers.image.title": "hisparse-runtime-test",
        "org.opencontainers.image.description": "For tests only: hisparse-runtime without vLLM, which tests mount",
    },
    tests_only="vLLM is not in it, tests mount it; `make images ENGINE=docker` builds hisparse-runtime on vLLM's own image",
)

BUILDAH_IMAGES = {"operator": OPERATOR, "embedded": EMBEDDED, "runtime-test": RUNTIME_TEST}
DOCKER_IMAGES = {"operator": OPERATOR, "embedded": EMBEDDED, "runtime": RUNTIME}
