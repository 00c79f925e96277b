"""`python -m tools.images [--engine docker]`: builds what is missing, prints references, sizes and times."""

import argparse
import json
import sys

from tools.bootstrap import BootstrapError, Timeline
from tools.images.build import build_images
from tools.images.docker import build_with_docker


def main() -> int:
    parser = argparse.ArgumentParser(prog="make images", description="Builds the operator's and the embedded engine's image.")
    parser.add_argument(
        "--engine",
        choices=["buildah", "docker", "podman"],
        default="buildah",
        help="what builds (default: buildah, into archives)",
    )
    engine = parser.parse_args().engine
    timeline = Timeline()
    try:
        if engine == "buildah":
            _print_archives(timeline)
        else:
            for reference in build_with_docker(engine, timeline=timeline):
                print(reference)
    except BootstrapError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(timeline.table())
    return 0


def _print_archives(timeline: Timeline) -> None:
    for image in build_images(timeline).values():
        components = len(json.loads(image.sbom.read_text(encoding="utf-8"))["components"])
        print(image.reference)
        print(f"  archive  {image.archive} ({image.archive.stat().st_size / 1e6:.1f} MB)")
        print(f"  SBOM     {image.sbom} ({components} components)")


if __name__ == "__main__":
    sys.exit(main())
