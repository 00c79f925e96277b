"""Data-plane kernels, reference in numpy: which device rows hold the selected tokens, and what must be copied first.

Used by engine only.
"""

from hisparse_runtime.kernels.resolve import HotRows, Resolution, ResolveError, resolve

__all__ = ["HotRows", "Resolution", "ResolveError", "resolve"]
