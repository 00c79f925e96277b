"""Where everything lies that is made once and kept: `$XDG_CACHE_HOME/hisparse` or `~/.cache/hisparse`."""

import os
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """The folder `parts` of the cache, made when it is not there. A relative XDG_CACHE_HOME is ignored, as the XDG rules ask."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    folder = root.joinpath("hisparse", *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
