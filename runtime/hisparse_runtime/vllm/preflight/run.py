"""All checks, in the order in which a person would want to put things right."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from hisparse_runtime.vllm.pod_plan import PodPlan
from hisparse_runtime.vllm.preflight.checks.memory_limit import check_memory_limit
from hisparse_runtime.vllm.preflight.facts import Facts, gather_facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, Severity, warning
from hisparse_runtime.vllm.preflight.report import Report

_T = TypeVar("_T")
_ORDER = list(Severity)


def run_preflight(
    plan: PodPlan,
    *,
    model: str,  # noqa: ARG001
    planned_config: Mapping[str, Any] | None,  # noqa: ARG001
    words: Sequence[str] = (),  # noqa: ARG001
    root: Path = Path("/"),
) -> Report:
    """`model`: folder or name, as vLLM gets it. `planned_config`: what the plan was made from. `words`: the command."""
    facts, failure = _guarded("facts", lambda: gather_facts(root))
    if facts is None:
        return Report(findings=() if failure is None else (failure,), facts={})
    found: list[Finding] = []
    for name, check in _checks(plan, facts):
        finding, failure = _guarded(name, check)
        found += [each for each in (finding, failure) if each is not None]
    return Report(findings=tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity))), facts=asdict(facts))


def _checks(plan: PodPlan, facts: Facts) -> Sequence[tuple[str, Callable[[], Finding | None]]]:
    return (("memory limit", lambda: check_memory_limit(plan, facts)),)


def _guarded(name: str, call: Callable[[], _T]) -> tuple[_T | None, Finding | None]:
    """What it gives, or the finding that it failed."""
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - a mistake in a check must not keep an engine from starting
        message = f"{name} could not be checked ({type(error).__name__}: {error}); the engine is started all the same"
        return None, warning(Reason.CHECK_FAILED, message)
