"""A command line for the branch of the announcement: its dialect is known, its code is not."""

from collections.abc import Iterator, Sequence

from hisparse_runtime.geometry import VLLM_VERSIONS
from hisparse_runtime.vllm.command_line.connectors import HISPARSE
from hisparse_runtime.vllm.command_line.meaning import ATTENTION, KV_TRANSFER, Meaning, read_meaning
from hisparse_runtime.vllm.command_line.options import option_table
from hisparse_runtime.vllm.command_line.words import read_command_line
from hisparse_runtime.vllm.dialects import BRANCH_NAME
from hisparse_runtime.vllm.explain.explanation import Explanation
from hisparse_runtime.vllm.explain.findings import Caution
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from hisparse_runtime.vllm.explain.summary import summary

# The branch came before it.
_CLOSEST_RELEASE = VLLM_VERSIONS["0.30"]


def explain_branch(words: Sequence[str]) -> Explanation:
    """Never a rejection: nothing of the branch could be asked. Raises CommandLineError for what is no `vllm serve` command."""
    line = read_command_line(words, option_table(_CLOSEST_RELEASE))
    meaning = read_meaning(line)
    return Explanation(
        version=BRANCH_NAME,
        command=line.words,
        summary=summary(meaning, Knowledge(version=_CLOSEST_RELEASE)),
        rejections=(),
        cautions=tuple(_cautions(meaning)),
        working=line.words,
        changes=(),
    )


def _cautions(meaning: Meaning) -> Iterator[Caution]:
    yield Caution(
        code="BranchNotChecked",
        message=f"{BRANCH_NAME} is no release: of this command only the dialect is judged, not what the branch would refuse",
    )
    if meaning.hisparse_connectors:
        yield Caution(
            code="ConnectorDialect",
            message=f"{KV_TRANSFER}: {HISPARSE} is how 0.30 and later are asked; the branch wants host_pool_gib in"
            f" hisparse_config of {ATTENTION}, and puts its connector beside the others by itself",
        )
