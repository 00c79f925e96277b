"""The same Dockerfiles by Docker or Podman, for machines that have one: bases from a registry, wheels from the index."""

from tools.bootstrap import Timeline
from tools.bootstrap.process import run
from tools.images.build import IMAGES
from tools.images.content import REPOSITORY, project_version


def build_with_docker(engine: str, *, timeline: Timeline) -> list[str]:
    """References of the images, in the engine's own store."""
    references = []
    for name in IMAGES:
        reference = f"hisparse-{name}:{project_version()}"
        with timeline.step(f"image {name}", f"{reference} by {engine}"):
            dockerfile = REPOSITORY / "images" / f"{name}.Dockerfile"
            run([engine, "build", "--build-arg", f"VERSION={project_version()}", "-f", dockerfile, "-t", reference, REPOSITORY])
        references.append(reference)
    return references
