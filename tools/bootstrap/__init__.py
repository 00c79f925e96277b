"""From a bare machine to a working checkout: Debian packages, the virtual environment, the cluster's binaries.

Runs before any dependency is there, so: standard library only.
"""

from tools.bootstrap.cache import cache_folder
from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.timeline import Timeline

__all__ = ["BootstrapError", "Timeline", "cache_folder"]
