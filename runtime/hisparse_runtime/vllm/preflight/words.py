"""What the command line of the engine says that a check depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hisparse_runtime.geometry import NEWEST_VERSION, UnknownVersionError, VllmVersion, vllm_version
from hisparse_runtime.vllm.command_line.meaning import read_meaning
from hisparse_runtime.vllm.command_line.options import option_table
from hisparse_runtime.vllm.command_line.words import CommandLineError, read_command_line
from hisparse_runtime.vllm.explain.cautions import features
from hisparse_runtime.vllm.explain.knowledge import Knowledge
from hisparse_runtime.vllm.known_bugs import Features
from hisparse_runtime.vllm.pod_plan import PodPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`revision`: of the model, None where the words have none."""

    features: Features
    revision: str | None


def read_words(plan: PodPlan, words: Sequence[str], planned_config: Mapping[str, Any] | None) -> Asked:
    """Words that are no `vllm serve` command say nothing; then the plan alone counts."""
    version = known_version(plan.vllm_version) or NEWEST_VERSION
    try:
        meaning = read_meaning(read_command_line(words, option_table(version)))
    except CommandLineError:
        return Asked(features=Features(is_tensor_parallel=plan.tensor_parallel_size > 1), revision=None)
    revision = meaning.value("--revision")
    return Asked(
        features=features(meaning, Knowledge(version=version, config=planned_config)),
        revision=revision if isinstance(revision, str) else None,
    )


def known_version(text: str) -> VllmVersion | None:
    """None for builds of the branch, and for releases that sizes are not known of."""
    try:
        return vllm_version(text)
    except UnknownVersionError:
        return None
