"""What a result was measured on."""

import os
import platform
import time


def machine(**versions: str) -> dict[str, object]:
    """`versions`: of what was measured, beside Python's own."""
    return {
        "python": platform.python_version(),
        **versions,
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%d"),
    }
