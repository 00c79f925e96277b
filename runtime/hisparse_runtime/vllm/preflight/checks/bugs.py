"""Bugs of the release that the engine can meet as it is planned: said, never a refusal."""

from hisparse_runtime.vllm.known_bugs import Features, bugs_met
from hisparse_runtime.vllm.pod_plan import Mode, PodPlan
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, warning
from hisparse_runtime.vllm.preflight.words import known_version


def check_bugs(plan: PodPlan, features: Features) -> Finding | None:
    """All of them are bugs of HiSparse."""
    version = known_version(plan.vllm_version)
    if version is None or plan.mode is Mode.OFF:
        return None
    bugs = bugs_met(version, features)
    if not bugs:
        return None
    told = "; ".join(f"{bug.text} ({bug.name}, {bug.advice})" for bug in bugs)
    return warning(Reason.KNOWN_BUGS, f"vLLM {version.name} has {len(bugs)} that this engine can meet: {told}")
