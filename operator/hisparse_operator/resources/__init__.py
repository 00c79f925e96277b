"""spec + Plan -> child objects as dictionaries. Pure: no client, no clock, no environment."""

from hisparse_operator.resources.rendering import Rendered, render

__all__ = ["Rendered", "render"]
