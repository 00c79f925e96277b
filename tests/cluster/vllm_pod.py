"""vLLM 0.32 for a CPU in a pod: the image `runtime-test` has everything but vLLM, which is mounted from where `make test` put it.

    /opt/vllm           the prepared environment's packages; the image's Python is of the same minor version
    /opt/vllm-test      made here, once: `distribution`, by which the CPU build answers to vLLM's name, and the model `tiny-llama`

A pod adds what every engine pod has: a writable /tmp, HOME in it, a USER's name, and a /dev/shm.
"""

import hashlib
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.tiny_llama import write_tiny_llama
from tools.bootstrap import Timeline, cache_folder
from tools.bootstrap.cache import make_once
from tools.bootstrap.process import run
from tools.images.wheels import PYTHON_VERSION
from tools.upstream import Upstream, reason_unsupported, upstream

IMAGE = "runtime-test"
"""Its name for build_images()."""
VERSION = "0.32"
PACKAGES = "/opt/vllm"
EXTRAS = "/opt/vllm-test"
MODEL_PATH = f"{EXTRAS}/tiny-llama"

_DISTRIBUTION_VERSION = "0.32.0"
# Three processes import these at each start, 5,100 modules: without kept bytecode that takes minutes, and a pod cannot keep any,
# because the mount is read-only. So they are imported once outside, by who owns the files.
_SERVER_MODULES = (
    "vllm.entrypoints.cli.main",
    "vllm.entrypoints.cli.serve",
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors",
    "model_hosting_container_standards.sagemaker",
)


def reason_impossible() -> str:
    """Why there can be no such pod on this machine; empty where there can."""
    if reason := reason_unsupported():
        return reason
    present = f"{sys.version_info.major}.{sys.version_info.minor}"
    return "" if present == PYTHON_VERSION else f"vLLM is installed for Python {present}, the image's is {PYTHON_VERSION}"


def environment() -> list[dict[str, str]]:
    """Variables of the container."""
    variables = {
        "PYTHONPATH": f"{PACKAGES}:{EXTRAS}/distribution",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return [{"name": name, "value": value} for name, value in variables.items()]


def volumes() -> list[dict[str, Any]]:
    """Of the pod; makes what is mounted where it is not there yet (half a minute)."""
    folders = {"vllm-packages": _packages(upstream(VERSION)), "vllm-test": _extras()}
    return [{"name": name, "hostPath": {"path": str(path), "type": "Directory"}} for name, path in folders.items()]


def mounts() -> list[dict[str, Any]]:
    """Of the container."""
    paths = {"vllm-packages": PACKAGES, "vllm-test": EXTRAS}
    return [{"name": name, "mountPath": path, "readOnly": True} for name, path in paths.items()]


@cache
def _extras() -> Path:
    found, timeline = upstream(VERSION), Timeline()
    sources = Path(__file__).read_bytes() + Path(write_tiny_llama.__code__.co_filename).read_bytes()
    key = hashlib.sha256(sources + str(found.python).encode()).hexdigest()[:12]
    target = cache_folder("vllm-pod") / key
    # Older ones stay: they are small, and a pod may have one mounted.
    make_once(target, make=partial(_make_extras, found), kept=target.name, say=timeline.say)
    return target


def _make_extras(found: Upstream, folder: Path) -> None:
    # vLLM asks for the version of the distribution `vllm`; the CPU build's is called vllm-cpu.
    metadata = folder / "distribution" / f"vllm-{_DISTRIBUTION_VERSION}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {_DISTRIBUTION_VERSION}+cpu\n", encoding="utf-8")
    write_tiny_llama(folder / Path(MODEL_PATH).name)
    imports = f"import {', '.join(_SERVER_MODULES)}"
    run([found.python, "-c", imports], cwd=folder, environment=found.environment)


def _packages(found: Upstream) -> Path:
    return found.python.parents[1] / "lib" / f"python{PYTHON_VERSION}" / "site-packages"
