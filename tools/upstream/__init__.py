"""The released vLLM versions whose own planner, arguments and scheduler the contract tests compare with.

Standard library only, as in tools/bootstrap: runs before anything is installed. For Linux on x86-64, as the wheels are.
"""

from tools.upstream.environment import Upstream, prepare, upstream
from tools.upstream.machine import VERSIONS, reason_unsupported

__all__ = ["VERSIONS", "Upstream", "prepare", "reason_unsupported", "upstream"]
