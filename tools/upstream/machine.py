"""Which versions there are, and whether this machine can have them."""

import platform
import sys

VERSIONS = ("0.30", "0.31", "0.32", "0.33")


def reason_unsupported() -> str:
    """Why vLLM's wheels do not run here; empty where they do."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return ""
    return f"vLLM's wheels for a CPU need Linux on x86-64, this is {sys.platform} on {platform.machine()}"
