"""spec + Plan -> child objects as dictionaries. Pure: no client, no clock, no environment."""

from hisparse_operator.resources.engine_images import EngineImages
from hisparse_operator.resources.rendering import Child, Rendered, render

__all__ = ["Child", "EngineImages", "Rendered", "render"]
