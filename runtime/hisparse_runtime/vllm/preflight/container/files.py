"""Files of /proc and /sys as text: what is not there, or may not be read, is empty."""

from pathlib import Path


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def below(root: Path, path: Path) -> Path:
    """`path` in the tree whose / is `root`; a relative one begins in the present folder."""
    return root / path.absolute().relative_to("/")
