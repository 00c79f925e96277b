"""GPUs and the RDMA devices that the container was given: by their device files, without any library."""

import re
from dataclasses import dataclass
from pathlib import Path

from hisparse_runtime.vllm.preflight.container.files import text_of

_GPU = re.compile(r"nvidia\d+")
_DRIVER_VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """`driver_version`: NVIDIA's on the node, None where there is none. `has_rdma`: InfiniBand, RoCE or EFA."""

    num_gpus: int
    driver_version: str | None
    has_rdma: bool


def devices(root: Path) -> Devices:
    files = [path.name for path in _listed(root / "dev")]
    # where devices are not files in /dev, the driver's own list is all there is
    driver = root / "proc/driver/nvidia"
    num_gpus = sum(_GPU.fullmatch(name) is not None for name in files) or len(_listed(driver / "gpus"))
    version = _DRIVER_VERSION.search(text_of(driver / "version"))
    return Devices(
        num_gpus=num_gpus,
        driver_version=None if version is None else version[0],
        has_rdma=any(path.name.startswith("uverbs") for path in _listed(root / "dev/infiniband")),
    )


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
