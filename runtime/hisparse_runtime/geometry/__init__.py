"""config.json -> layers, row bytes, page and block bytes. Pure: no client, no clock, no environment, no arrays."""

from hisparse_runtime.geometry.model import ModelConfigError, ModelGeometry, read_geometry

__all__ = ["ModelConfigError", "ModelGeometry", "read_geometry"]
