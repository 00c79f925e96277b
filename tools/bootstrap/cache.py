"""Where everything lies that is made once and kept: `$XDG_CACHE_HOME/hisparse` or `~/.cache/hisparse`."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tools.bootstrap.failure import BootstrapError


def cache_folder(*parts: str) -> Path:
    """The folder `parts` of the cache, made when it is not there. A relative XDG_CACHE_HOME is ignored, as the XDG rules ask."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    folder = root.joinpath("hisparse", *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_once(target: Path, *, make: Callable[[Path], None], kept: str, say: Callable[[str], None]) -> None:
    """`target`, a folder that `make` fills under another name, so that it is either whole or absent.

    Others that match the pattern `kept` beside it are older versions of the same and go away. Processes wait for each other.
    """
    with (target.parent / ".lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process fills {target.parent}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise BootstrapError(
                f"{target.parent} cannot be locked ({error}); set XDG_CACHE_HOME to a folder on a local disk"
            ) from error
        if target.is_dir():
            return
        partial = target.parent / ".partial"
        shutil.rmtree(partial, ignore_errors=True)  # of an interrupted call: nobody else holds the lock
        partial.mkdir()
        make(partial)
        for old in target.parent.glob(kept):
            shutil.rmtree(old)
        partial.rename(target)
