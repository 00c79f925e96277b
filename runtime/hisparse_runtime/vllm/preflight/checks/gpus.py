"""GPUs that the container was given, against those of the plan."""

from hisparse_runtime.vllm.pod_plan import Mode, PodPlan
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, note, refused


def check_gpus(plan: PodPlan, facts: Facts) -> Finding | None:
    """HiSparse needs CUDA; without it, the engine may be vLLM for a CPU, on a node that has no driver."""
    found = facts.devices
    if found.num_gpus >= plan.gpus:
        return None
    if plan.mode is Mode.OFF and not found.num_gpus and found.driver_version is None:
        return note(Reason.GPUS_NOT_CHECKED, "no GPU and no NVIDIA driver: taken for a node that serves on its CPU")
    driver = "no NVIDIA driver" if found.driver_version is None else f"NVIDIA driver {found.driver_version}"
    return refused(
        Reason.NOT_ENOUGH_GPUS,
        f"the container has {found.num_gpus} GPUs ({driver}), and the plan has {plan.gpus}: set resources.limits of"
        f" nvidia.com/gpu to {plan.gpus}, and see that the pod's runtimeClassName or the node's default is NVIDIA's",
    )
