"""One life of a real vLLM under the launcher: started, probed, stopped while a request runs.

It starts once, which takes a minute or two; each test looks at another part of what was seen.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hisparse_operator.telemetry.report import ResidencyReport
from hisparse_runtime.vllm.pod_plan import pod_plan_to_json
from tests.tiny_llama import write_tiny_llama
from tests.unit.vllm.launch.launched import API_KEY
from tests.unit.vllm.launch.launched import PLAN as STAND_IN_PLAN
from tools.upstream import upstream

# The same life in a pod is a test of every run: tests/cluster/test_vllm_engine.py.
pytestmark = [pytest.mark.contract, pytest.mark.nightly, pytest.mark.timeout(900)]

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
START_SECONDS = 600.0
DRAIN_SECONDS = 180
# More than a fast machine makes between two looks, and less than a slow one makes in DRAIN_SECONDS.
NUM_TOKENS = 10_000
GIB = 1 << 30
PLAN = replace(
    STAND_IN_PLAN,
    gpus=0,
    working_set_bytes=GIB,
    memory_bytes=4 * GIB,
    drain_seconds=DRAIN_SECONDS,
    unpin_seconds=5,
    startup_seconds=int(START_SECONDS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What was seen of it. `stages`: before it served, in order. `drained`: answers after SIGTERM."""

    stages: list[str]
    before: dict[str, int]
    serving: dict[str, int]
    residency: dict[str, Any]
    drained: dict[str, httpx.Response]
    completion: dict[str, Any]
    exit_code: int
    log: str


@pytest.fixture(scope="session")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    folder = tmp_path_factory.mktemp("launch")
    with _launched(folder) as (process, status, engine), ThreadPoolExecutor() as pool:
        stages: list[str] = []
        _wait_until(lambda: _answers(f"{status}/live"), process)
        before = _codes(status)
        _wait_until(lambda: _stage_is(f"{status}/hisparse/progress", "serving", stages), process)
        serving = _codes(status)
        request = pool.submit(_complete, engine)
        residency: dict[str, Any] = {}

        def is_request_in_it() -> bool:
            residency.update(httpx.get(f"{status}/hisparse/residency", timeout=30).json())
            return bool(residency["requests"]["running"])

        _wait_until(is_request_in_it, process)
        process.send_signal(signal.SIGTERM)
        _wait_until(lambda: httpx.get(f"{status}/ready", timeout=30).status_code == 503, process)
        drained = {path: httpx.get(status + path, timeout=30) for path in ("/ready", "/live", "/hisparse/residency")}
        assert not request.done(), "the request was to run longer"
        completion = request.result(DRAIN_SECONDS)
        exit_code = process.wait(DRAIN_SECONDS)
        return Life(
            stages=stages,
            before=before,
            serving=serving,
            residency=residency,
            drained=drained,
            completion=completion,
            exit_code=exit_code,
            log=(folder / "log").read_text(encoding="utf-8"),
        )


def test_probes_say_no_before_the_model_answers_and_yes_then(life: Life) -> None:
    assert life.before == {"/startup": 503, "/ready": 503, "/live": 200, "/hisparse/residency": 503}
    assert life.serving == dict.fromkeys(life.before, 200)


def test_progress_goes_through_import_and_load(life: Life) -> None:
    """Some stage may be too short to be seen, but none comes twice."""
    assert life.stages[-1] == "serving"
    assert life.stages == [stage for stage in ("preflight", "starting", "loading", "serving") if stage in life.stages]
    assert "loading" in life.stages


def test_residency_has_the_running_request_in_the_operators_terms(life: Life) -> None:
    report = ResidencyReport.model_validate(life.residency)
    assert (report.engine.type, report.engine.model) == ("VLLM", "tiny")
    assert (report.requests.running, report.requests.full) == (1, 1)


def test_a_request_that_runs_at_sigterm_is_answered_whole_while_the_pod_is_not_ready(life: Life) -> None:
    assert life.drained["/ready"].json() == {"stage": "draining"}
    assert life.drained["/live"].status_code == 200
    assert life.drained["/hisparse/residency"].json()["requests"]["running"] == 1
    assert life.completion["choices"][0]["finish_reason"] == "length"
    assert life.completion["usage"]["completion_tokens"] == NUM_TOKENS


def test_the_end_is_clean_and_the_log_has_no_secret(life: Life) -> None:
    assert life.exit_code == 0
    assert "hisparse launch: the engine ended with 0" in life.log
    assert API_KEY not in life.log


@contextmanager
def _launched(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    """The launcher, its address and the engine's."""
    vllm = upstream("0.32")
    write_tiny_llama(folder / "model")
    (folder / "plan.json").write_text(json.dumps(pod_plan_to_json(PLAN)), encoding="utf-8")
    # vLLM asks for its distribution, which in the build for a CPU has another name.
    metadata = folder / "installed" / "vllm-0.32.0+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n", encoding="utf-8")
    status_port, engine_port = _free_port(), _free_port()
    options = f"--served-model-name tiny --host 127.0.0.1 --port {engine_port} --load-format dummy --dtype bfloat16"
    sizes = f"--max-model-len 16384 --max-num-seqs 8 --enforce-eager --shutdown-timeout {DRAIN_SECONDS}"
    words = ["vllm", "serve", str(folder / "model"), *options.split(), *sizes.split()]
    environment = {
        **os.environ,
        **vllm.environment,
        "PYTHONPATH": f"{RUNTIME}:{folder / 'installed'}",
        "PYTHONUNBUFFERED": "1",
        "VLLM_API_KEY": API_KEY,
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    own = ["-m", "hisparse_runtime.vllm.launch", "--plan", str(folder / "plan.json"), "--status-port", str(status_port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(vllm.python), *own, "--", *words], cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process, f"http://127.0.0.1:{status_port}", f"http://127.0.0.1:{engine_port}"
        except BaseException:
            print((folder / "log").read_text(encoding="utf-8", errors="replace")[-8000:])
            raise
        finally:
            # Twice: a launcher that is killed itself leaves its engine behind.
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(DRAIN_SECONDS + 30)
            process.kill()
            process.wait()


def _complete(engine: str) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": "hello", "max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0}
    answer = httpx.post(
        f"{engine}/v1/completions", json=body, headers={"Authorization": f"Bearer {API_KEY}"}, timeout=DRAIN_SECONDS
    )
    content: dict[str, Any] = answer.raise_for_status().json()
    return content


def _codes(status: str) -> dict[str, int]:
    paths = ("/startup", "/ready", "/live", "/hisparse/residency")
    return {path: httpx.get(status + path, timeout=30).status_code for path in paths}


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        httpx.get(url, timeout=30)
        return True
    return False


def _stage_is(url: str, wanted: str, seen: list[str]) -> bool:
    stage: str = httpx.get(url, timeout=30).json()["stage"]
    if seen[-1:] != [stage]:
        seen.append(stage)
    return stage == wanted


def _wait_until(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        assert process.poll() is None, f"the launcher ended with {process.returncode}"
        assert time.monotonic() < deadline, f"not within {START_SECONDS:.0f} s"
        time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
