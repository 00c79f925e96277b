"""Whether a container can hold the engine that it was planned for: first thing in the pod, in seconds, before weights load.

Checks are pure functions of plan and facts; `facts` is the shell that looks. Imports neither torch nor vLLM.
"""

from hisparse_runtime.vllm.preflight.findings import Finding, Reason, Severity
from hisparse_runtime.vllm.preflight.report import EXIT_REFUSED, Report
from hisparse_runtime.vllm.preflight.run import run_preflight

__all__ = ["EXIT_REFUSED", "Finding", "Reason", "Report", "Severity", "run_preflight"]
