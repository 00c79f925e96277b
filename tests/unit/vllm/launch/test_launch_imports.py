"""The launcher answers probes while vLLM is still being imported, so it must not need any of that itself."""

import subprocess
import sys

HEAVY = {"fastapi", "numpy", "torch", "transformers", "uvicorn", "vllm"}


def test_launch_loads_nothing_heavy() -> None:
    code = "import sys, hisparse_runtime.vllm.launch.options, hisparse_runtime.vllm.launch.parts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "prometheus_client" in loaded
    assert not loaded & HEAVY
