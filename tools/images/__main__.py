"""`python -m tools.images [--engine docker]`: builds what is missing, prints references, sizes and times."""

import argparse
import json
import sys
from pathlib import Path

from tools.bootstrap import BootstrapError, Timeline
from tools.images.build import build_images
from tools.images.docker import build_with_docker
from tools.images.recipes import BUILDAH_IMAGES


def main() -> int:
    parser = argparse.ArgumentParser(prog="make images", description="Builds the images of operator, embedded engine and vLLM.")
    parser.add_argument(
        "--engine",
        choices=["buildah", "docker", "podman"],
        default="buildah",
        help="what builds (default: buildah, into archives)",
    )
    parser.add_argument("--vllm-version", default="", help="of the runtime image, such as 0.32.0 (default: the newest supported)")
    options = parser.parse_args()
    if options.vllm_version and options.engine == "buildah":
        parser.error("--vllm-version: vLLM's image comes from a registry; next step: make images ENGINE=docker")
    timeline = Timeline()
    try:
        if options.engine == "buildah":
            _print_archives(timeline)
        else:
            for reference, bom in build_with_docker(options.engine, vllm_version=options.vllm_version, timeline=timeline).items():
                print(reference)
                _print_bom(bom)
    except BootstrapError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(timeline.table())
    return 0


def _print_archives(timeline: Timeline) -> None:
    for name, image in build_images(timeline, names=tuple(BUILDAH_IMAGES)).items():
        print(image.reference)
        if only := BUILDAH_IMAGES[name].tests_only:
            print(f"  FOR TESTS ONLY: {only}")
        print(f"  archive  {image.archive} ({image.archive.stat().st_size / 1e6:.1f} MB)")
        _print_bom(image.sbom)


def _print_bom(file: Path) -> None:
    components = len(json.loads(file.read_text(encoding="utf-8"))["components"])
    print(f"  SBOM     {file} ({components} components)")


if __name__ == "__main__":
    sys.exit(main())
