"""Installs hash-locked files: uv takes a quarter of pip's time, pip knows the machine's configuration. So both."""

import ast
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.process import run
from tools.bootstrap.timeline import Timeline

# Without bytecode: most of the modules are never imported, and Python compiles those that are.
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-compile")
# pip option -> uv's variable; uv reads none of pip's configuration.
VARIABLE_OF_OPTION = {
    "cert": "SSL_CERT_FILE",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
}


def install_locked(python: Path, files: Sequence[Path], *, uv_file: Path, timeline: Timeline) -> None:
    """`uv_file` locks uv itself, which pip installs beside the rest."""
    run([python, *PIP, "--require-hashes", "-r", uv_file])
    install_with_uv(python.parent / "uv", python, files, timeline=timeline)


def install_with_uv(uv: Path, python: Path, files: Sequence[Path], *, timeline: Timeline, is_cached: bool = True) -> None:
    """Into the environment of `python`; where uv cannot fetch what pip can, pip does it all.

    Unless `is_cached`, neither keeps a copy for other environments.
    """
    requirements = [word for path in files for word in ("-r", str(path))]
    try:
        environment = uv_environment(run([python, "-m", "pip", "config", "list"]), present=os.environ)
        options = ["--quiet", "--no-deps", "--require-hashes", *([] if is_cached else ["--no-cache"])]
        run([uv, "pip", "install", "--python", python, *options, *requirements], environment=environment)
    except BootstrapError as error:
        timeline.say(f"uv could not install the locked packages, pip tries: {str(error).splitlines()[-1].strip()}")
        run([python, *PIP, *([] if is_cached else ["--no-cache-dir"]), "--require-hashes", *requirements])


def uv_environment(pip_configuration: str, *, present: Mapping[str, str]) -> dict[str, str]:
    """uv's variables for what `pip config list` prints (lines of `section.option='value'`); those that are set already stay."""
    variables = {}
    for line in pip_configuration.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        variable = VARIABLE_OF_OPTION.get(option)
        if variable and section in {"global", "install", ":env:"} and variable not in present:
            words = str(ast.literal_eval(value)).split()
            variables[variable] = ",".join(words) if variable == "UV_FIND_LINKS" else " ".join(words)
    return variables
