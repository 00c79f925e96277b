"""The installed vLLM against the one that the plan was made for: sizes, options and bugs are a release's own."""

import re

from hisparse_runtime.geometry import UnknownVersionError
from hisparse_runtime.vllm.dialects import Dialect, dialect_of_fields, dialect_of_version
from hisparse_runtime.vllm.pod_plan import Mode, PodPlan
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, refused

_RELEASE = re.compile(r"v?(\d+\.\d+)")


def check_version(plan: PodPlan, facts: Facts) -> Finding | None:
    found = facts.vllm
    next_step = f"use an image with vLLM {plan.vllm_version}, or set spec.engine.vllm.version to the image's"
    if found is None:
        return refused(Reason.WRONG_VLLM_VERSION, f"no vLLM is installed for this Python: {next_step}")
    if plan.mode is Mode.ON and found.is_for_cpu:
        return refused(
            Reason.WRONG_VLLM_VERSION,
            f"vLLM {found.version} is built for CPUs, and HiSparse needs CUDA: use an image with vLLM for GPUs, or mode Off",
        )
    planned = _planned_dialect(plan)
    if planned is not Dialect.BRANCH and _release(found.version) != _release(plan.vllm_version):
        return refused(
            Reason.WRONG_VLLM_VERSION, f"vLLM {found.version} is installed, the plan is for {plan.vllm_version}: {next_step}"
        )
    if plan.mode is Mode.OFF or planned is None or found.hisparse_fields is None:
        return None
    dialect = dialect_of_fields(found.hisparse_fields)
    if dialect is planned:
        return None
    return refused(
        Reason.WRONG_VLLM_VERSION,
        f"vLLM {found.version} takes the options of HiSparse in the dialect {dialect} (fields of its HiSparseConfig:"
        f" {', '.join(found.hisparse_fields)}), the plan for {plan.vllm_version} is in the dialect {planned}: {next_step}",
    )


def _planned_dialect(plan: PodPlan) -> Dialect | None:
    """None for a release that is not known to have HiSparse."""
    try:
        return dialect_of_version(plan.vllm_version)
    except UnknownVersionError:
        return None


def _release(version: str) -> str:
    """`0.33` of `v0.33.1.dev5+g0123`; what has no number as it is."""
    found = _RELEASE.match(version.strip())
    return version if found is None else found[1]
