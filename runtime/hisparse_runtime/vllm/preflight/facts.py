"""What the container is: the only part of preflight that looks at the machine."""

from dataclasses import dataclass
from pathlib import Path

from hisparse_runtime.vllm.preflight.cgroup import memory_limit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """None where it could not be told."""

    memory_limit_bytes: int | None


def gather_facts(root: Path) -> Facts:
    """`root`: the folder that stands for / ."""
    return Facts(memory_limit_bytes=memory_limit_bytes(root))
