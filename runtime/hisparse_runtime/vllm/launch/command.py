"""What is started for the words after `--`, and where it will answer under which name."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

_DEFAULT_PORT = 8000
# Not an address to connect to.
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, never bound


class CommandError(ValueError):
    """The words are no command of an engine; the text says which are missing. It has no value of an option in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """`arguments` are for exec. `model` is what is loaded, `served_name` what requests call it."""

    arguments: tuple[str, ...]
    model: str
    served_name: str
    host: str
    port: int


def engine_command(words: Sequence[str]) -> EngineCommand:
    """For words as `serve_command` renders them: `PROGRAM serve MODEL [OPTION VALUE]...`. Raises CommandError.

    `vllm` is run as a module of this interpreter: the script of that name is absent where packages are mounted, and starts the
    wrong interpreter where they were moved. As for a script, nothing is looked for in the working directory (-P).
    """
    if len(words) < 3 or words[1] != "serve" or words[2].startswith("-"):
        raise CommandError(
            f"{len(words)} words after `--`, which are not `vllm serve MODEL ...`; next step: give vLLM's command line there,"
            " the model first"
        )
    host = _value(words, "--host") or ""
    port = _value(words, "--port") or str(_DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise CommandError("--port is not a number of 1 to 65535; next step: correct it, or leave it out for 8000")
    program = (sys.executable, "-P", "-m", "vllm.entrypoints.cli.main") if words[0] == "vllm" else (words[0],)
    return EngineCommand(
        arguments=(*program, *words[1:]),
        model=words[2],
        served_name=_value(words, "--served-model-name") or words[2],
        host="127.0.0.1" if host in _ANY_ADDRESS else host,
        port=int(port),
    )


def _value(words: Sequence[str], option: str) -> str | None:
    """The plan decides these options and renders them as two words; nobody can give them beside it."""
    return words[words.index(option) + 1] if option in words[:-1] else None
