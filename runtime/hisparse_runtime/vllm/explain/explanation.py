"""What a `vllm serve` command line says, what a release will refuse of it and when, and the one that works."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hisparse_runtime.vllm.command_line.meaning import Meaning, read_meaning
from hisparse_runtime.vllm.command_line.options import option_table
from hisparse_runtime.vllm.command_line.words import CommandLine, read_command_line
from hisparse_runtime.vllm.explain.argparse_rules import argparse_rejections
from hisparse_runtime.vllm.explain.cautions import cautions, spelling_cautions
from hisparse_runtime.vllm.explain.connector_rules import (
    connector_rejections,
    hisparse_connector_rejections,
    nixl_rejections,
)
from hisparse_runtime.vllm.explain.findings import Caution, Rejection
from hisparse_runtime.vllm.explain.hisparse_rules import feature_rejections, field_rejections
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from hisparse_runtime.vllm.explain.model_rules import model_rejections
from hisparse_runtime.vllm.explain.offload_rules import offload_rejections
from hisparse_runtime.vllm.explain.pool_rules import pool_rejections
from hisparse_runtime.vllm.explain.shape_rules import shape_rejections
from hisparse_runtime.vllm.explain.size_rules import size_rejections
from hisparse_runtime.vllm.explain.summary import summary

# More than any line has mistakes; each change puts one right.
_MOST_CHANGES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`rejections` in the order in which vLLM would come to them: it stops at the first. `working` is None where only the user
    can know what was meant; it is the command itself where nothing has to be changed. `summary` is about that command, and about
    the given one where there is none.
    """

    version: str
    command: tuple[str, ...]
    summary: tuple[tuple[str, str], ...]
    rejections: tuple[Rejection, ...]
    cautions: tuple[Caution, ...]
    working: tuple[str, ...] | None
    changes: tuple[str, ...]

    @property
    def is_accepted(self) -> bool:
        return not self.rejections


def explain(words: Sequence[str], knowledge: Knowledge) -> Explanation:
    """Raises CommandLineError for words that are no `vllm serve` command."""
    line = read_command_line(words, option_table(knowledge.version))
    meaning = read_meaning(line)
    rejections = _rejections(meaning, knowledge)
    working, changes = _repaired(line, rejections, knowledge)
    fixed = meaning if working is None else read_meaning(working)
    minded = (*spelling_cautions(meaning), *cautions(fixed, knowledge))
    if working is not None:
        for edit in (caution.edit for caution in minded if caution.edit is not None):
            working, changes = edit.apply(working), (*changes, edit.what)
        fixed = read_meaning(working)
    return Explanation(
        version=knowledge.version.name,
        command=line.words,
        summary=summary(fixed, knowledge),
        rejections=rejections,
        cautions=minded,
        working=None if working is None else working.words,
        changes=changes,
    )


def shell_text(words: Sequence[str]) -> str:
    """To be pasted into a shell: an option a line."""
    lines: list[str] = []
    for word in words:
        quoted = shlex.quote(word)
        if word.startswith("-") or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n  ".join(lines)


def _rejections(meaning: Meaning, knowledge: Knowledge) -> tuple[Rejection, ...]:
    found = list(_found(meaning, knowledge))
    return tuple(sorted(found, key=lambda rejection: rejection.stage.order))


def _found(meaning: Meaning, knowledge: Knowledge) -> Iterator[Rejection]:
    yield from argparse_rejections(meaning)
    yield from shape_rejections(meaning)
    yield from field_rejections(meaning)
    yield from model_rejections(meaning, knowledge)
    has_hisparse = meaning.has_hisparse
    if has_hisparse:
        yield from feature_rejections(meaning, knowledge)
    yield from connector_rejections(meaning, knowledge)
    yield from hisparse_connector_rejections(meaning)
    yield from pool_rejections(meaning, knowledge)
    if has_hisparse:
        yield from size_rejections(meaning, knowledge)
    yield from offload_rejections(meaning, knowledge)
    yield from nixl_rejections(meaning)


def _repaired(
    line: CommandLine, rejections: tuple[Rejection, ...], knowledge: Knowledge
) -> tuple[CommandLine | None, tuple[str, ...]]:
    changes: list[str] = []
    for _ in range(_MOST_CHANGES):
        if not rejections:
            return line, tuple(changes)
        edit = rejections[0].edit
        # an edit could take away what another rule could not make sense of
        if edit is None or any(rejection.edit is None for rejection in rejections):
            return None, tuple(changes)
        changed = edit.apply(line)
        if changed.words == line.words:
            return None, tuple(changes)
        line = changed
        changes.append(edit.what)
        rejections = _rejections(read_meaning(line), knowledge)
    return None, tuple(changes)
