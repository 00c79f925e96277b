"""The same Dockerfiles by Docker or Podman, for machines that have one: bases from a registry, wheels from the index."""

import subprocess
import tarfile
import tempfile
from pathlib import Path

from tools.bootstrap import BootstrapError, Timeline, cache_folder
from tools.bootstrap.process import run
from tools.images.content import REPOSITORY, default_vllm_version, dockerfile, project_version, revision
from tools.images.recipes import DOCKER_IMAGES, RUNTIME
from tools.images.sbom import is_read, write_sbom

# In the base's own interpreter: that it has vLLM, which one, and that ours finds there what it imports.
PROVE = "import importlib.metadata, hisparse_runtime.vllm.pod_plan; print(importlib.metadata.version('vllm'))"


def build_with_docker(engine: str, *, vllm_version: str = "", timeline: Timeline) -> dict[str, Path]:
    """Bills of materials by reference; the images are in the engine's own store. `vllm_version`: of the runtime image's base."""
    vllm_version = vllm_version or default_vllm_version()
    boms = {}
    for name, recipe in DOCKER_IMAGES.items():
        # One image for each minor version: the chart's engine.vllmImage has {version} there.
        minor = ".".join(vllm_version.split(".")[:2])
        version = f"{project_version()}-vllm{minor}" if recipe is RUNTIME else project_version()
        reference = f"hisparse-{name}:{version}"
        with timeline.step(f"image {name}", f"{reference} by {engine}"):
            arguments = {"VERSION": project_version(), "REVISION": revision()}
            if recipe is RUNTIME:
                arguments["VLLM_VERSION"] = vllm_version
            words = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
            run([engine, "build", *words, "-f", dockerfile(recipe), "-t", reference, REPOSITORY])
        if recipe is RUNTIME:
            _check_base(engine, reference, vllm_version=vllm_version)
        with timeline.step(f"SBOM of {name}"):
            boms[reference] = cache_folder("images", "docker") / f"hisparse-{name}-{version}.cdx.json"
            _write_sbom(engine, reference, name=f"hisparse-{name}", version=version, output=boms[reference])
    return boms


def _check_base(engine: str, reference: str, *, vllm_version: str) -> None:
    found = run([engine, "run", "--rm", "--entrypoint", "python3", reference, "-c", PROVE]).strip()
    if not found.startswith(vllm_version):
        raise BootstrapError(f"{reference} has vLLM {found}, not {vllm_version}; next step: remove the engine's copy of the base")


def _write_sbom(engine: str, reference: str, *, name: str, version: str, output: Path) -> None:
    """Of the exported file system only the package databases are kept: vLLM's image has 20 GB."""
    container = run([engine, "create", reference]).strip()
    try:
        with (
            tempfile.TemporaryDirectory() as root,
            subprocess.Popen([engine, "export", container], stdout=subprocess.PIPE) as export,
        ):
            assert export.stdout is not None
            with tarfile.open(fileobj=export.stdout, mode="r|") as files:
                for member in files:
                    if not (member.isfile() and is_read(member.name.removeprefix("./"))):
                        continue
                    content = files.extractfile(member)
                    assert content is not None, "it is a file"
                    target = Path(root) / member.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())
            write_sbom(Path(root), name=name, version=version, output=output)
    finally:
        run([engine, "rm", container])
