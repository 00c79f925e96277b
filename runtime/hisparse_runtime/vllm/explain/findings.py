"""What is wrong with a command line, when vLLM would find out, and the change that puts it right."""

from dataclasses import dataclass
from enum import StrEnum

from hisparse_runtime.vllm.command_line.edits import Edit


class Stage(StrEnum):
    """How far a start comes; in order."""

    ARGPARSE = "argparse"
    CONFIG = "config"
    MODEL = "model"
    PLANNING = "planning"
    WORKERS = "workers"

    @property
    def when(self) -> str:
        return _WHEN[self]

    @property
    def order(self) -> int:
        return list(Stage).index(self)


_WHEN = {
    Stage.ARGPARSE: "at once, when the command line is read",
    Stage.CONFIG: "within a minute, before any GPU work",
    Stage.MODEL: "when the model is built, before its weights are read",
    Stage.PLANNING: "when the KV caches are planned: minutes later, with all weights loaded",
    Stage.WORKERS: "when the workers' connectors start: minutes later, with all weights loaded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """vLLM will not start. `says`: a part of its own message. `edit` is None where only the user knows what to do."""

    code: str
    stage: Stage
    option: str
    message: str
    says: str
    edit: Edit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """vLLM starts, and something may not be as it looks. `edit`: for what nobody can want."""

    code: str
    message: str
    edit: Edit | None = None
