"""All checks, in the order in which a person would put things right."""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.checks.bugs import check_bugs
from hisparse_runtime.vllm.preflight.checks.gpus import check_gpus
from hisparse_runtime.vllm.preflight.checks.memory_limit import check_memory_limit
from hisparse_runtime.vllm.preflight.checks.model import check_model
from hisparse_runtime.vllm.preflight.checks.node_memory import check_huge_pages, check_node_memory
from hisparse_runtime.vllm.preflight.checks.numa import check_numa
from hisparse_runtime.vllm.preflight.checks.pinning import check_memlock, check_populate
from hisparse_runtime.vllm.preflight.checks.shared_memory import check_leftovers, check_shared_memory
from hisparse_runtime.vllm.preflight.checks.version import check_version
from hisparse_runtime.vllm.preflight.facts import Facts, facts_to_json, gather_facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, Severity, warning
from hisparse_runtime.vllm.preflight.report import Report
from hisparse_runtime.vllm.preflight.words import Asked, read_words

_T = TypeVar("_T")
_Check = Callable[[], Finding | None]
_ORDER = list(Severity)


def run_preflight(
    plan: PodPlan,
    *,
    model: str,
    planned_config: Mapping[str, Any] | None,
    words: Sequence[str] = (),
    root: Path = Path("/"),
) -> Report:
    """Looks at the container, and removes from its /dev/shm what an engine before this one has left.

    `model`: folder or name, as vLLM gets it. `planned_config`: what the plan was made from. `words`: `vllm serve ...`.
    """
    findings: list[Finding] = []
    asked = _guarded("command line", lambda: read_words(plan, words, planned_config), findings)
    revision = None if asked is None else asked.revision
    facts = _guarded("facts", lambda: gather_facts(plan, model=model, revision=revision, root=root), findings)
    if facts is not None:
        for name, check in _checks(plan, facts, asked=asked, model=model, planned_config=planned_config):
            finding = _guarded(name, check, findings)
            if finding is not None:
                findings.append(finding)
    return Report(
        findings=tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity))),
        facts={} if facts is None else facts_to_json(facts),
    )


def _checks(
    plan: PodPlan, facts: Facts, *, asked: Asked | None, model: str, planned_config: Mapping[str, Any] | None
) -> Iterator[tuple[str, _Check]]:
    yield "vLLM version", lambda: check_version(plan, facts)
    yield "GPUs", lambda: check_gpus(plan, facts)
    yield "memory limit", lambda: check_memory_limit(plan, facts)
    yield "shared memory", lambda: check_shared_memory(plan, facts)
    yield "leftovers", lambda: check_leftovers(facts)
    yield "node memory", lambda: check_node_memory(plan, facts)
    yield "NUMA", lambda: check_numa(plan, facts)
    yield "huge pages", lambda: check_huge_pages(plan, facts)
    yield "kernel", lambda: check_populate(plan, facts)
    yield "model", lambda: check_model(facts, model=model, planned_config=planned_config)
    if asked is not None:
        yield "memlock", lambda: check_memlock(plan, facts, has_nixl=asked.features.has_nixl)
        yield "known bugs", lambda: check_bugs(plan, asked.features)


def _guarded(name: str, call: Callable[[], _T], findings: list[Finding]) -> _T | None:
    """What it gives; or None, with the finding that it failed."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - a mistake in preflight must not keep an engine from starting
        # not its text, which may have a value of the command line in it
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
        findings.append(warning(Reason.CHECK_FAILED, f"{name}: {what}: not checked, and no reason to refuse; please report it"))
        return None
