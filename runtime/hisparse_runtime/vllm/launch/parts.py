"""The parts of a launch that know vLLM itself: preflight, and what its metrics say about residency."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hisparse_runtime.vllm.launch.command import EngineCommand
from hisparse_runtime.vllm.launch.engine_client import NoAnswerError
from hisparse_runtime.vllm.launch.run import Parts
from hisparse_runtime.vllm.launch.status_answers import Residency
from hisparse_runtime.vllm.pod_plan import CONFIG_FILE, PodPlan, read_planned_config
from hisparse_runtime.vllm.preflight import Report, run_preflight
from hisparse_runtime.vllm.telemetry.residency import MetricsError, residency_of_metrics


def vllm_parts(plan_file: Path) -> Parts:
    """The model's config.json, which the plan was made from, lies beside the plan; without it, the model is not compared."""

    def preflight(plan: PodPlan, command: EngineCommand, words: Sequence[str]) -> Report:
        return run_preflight(
            plan, model=command.model, planned_config=read_planned_config(plan_file.with_name(CONFIG_FILE)), words=words
        )

    return Parts(preflight=preflight, residency=_residency)


def _residency(plan: PodPlan, command: EngineCommand) -> Residency:
    def report(text: str, engine_seconds: float) -> dict[str, Any]:
        try:
            return residency_of_metrics(
                text,
                model=command.served_name,
                version=plan.vllm_version,
                uptime_seconds=engine_seconds,
                device_block_bytes=plan.device_block_bytes,
                offload_bytes=plan.cpu_bytes_to_use,
            )
        except MetricsError as error:
            raise NoAnswerError(str(error)) from error

    return report
