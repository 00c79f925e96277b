"""The launcher as a process. The engine is a stand-in; the real one is asked in tests/contract/test_vllm_launch.py."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hisparse_runtime.vllm.launch.drain import drain
from hisparse_runtime.vllm.launch.engine_client import EngineClient
from hisparse_runtime.vllm.launch.state import LaunchState
from hisparse_runtime.vllm.launch.status_answers import StatusAnswers
from hisparse_runtime.vllm.launch.status_server import is_loopback
from tests.unit.vllm.launch.launched import (
    API_KEY,
    PATIENCE_SECONDS,
    PLAN,
    free_port,
    is_listening,
    is_running,
    launched,
    wait_until,
)

# Far above what any test waits for: an engine that sleeps so long was ended.
FOR_EVER_SECONDS = 600


def test_stand_in_is_probed_from_its_import_until_it_serves(tmp_path: Path) -> None:
    with launched(tmp_path, import_lasts=True) as pod:
        pod.wait_for("started")
        starting = {path: pod.get(path) for path in ("/startup", "/ready", "/live", "/hisparse/residency")}
        assert {path: answer.status_code for path, answer in starting.items()} == {
            "/startup": 503,
            "/ready": 503,
            "/live": 200,
            "/hisparse/residency": 503,
        }
        assert starting["/startup"].json()["stage"] == "starting"
        assert pod.get(f"/drain?seconds={FOR_EVER_SECONDS}").json() == {"stage": "starting", "waited_seconds": 0}
        (tmp_path / "import-may-end").touch()
        pod.wait_for_stage("serving")
        for path in starting:
            assert pod.get(path).status_code == 200, path
        assert pod.get("/hisparse/residency").json() == {"page": "vllm:num_requests_running 1\n"}
        assert pod.get("/elsewhere").status_code == 404


def test_a_stop_while_the_stand_in_imports_ends_it_at_once(tmp_path: Path) -> None:
    with launched(tmp_path, import_lasts=True) as pod:
        pod.wait_for("started")
        pod.stop()
        exit_code, _, errors = pod.end()
    assert (exit_code, pod.termination_message) == (128 + signal.SIGTERM, "")
    assert "SIGTERM before the engine serves: it is ended at once" in errors
    assert "killed" not in errors


def test_a_stand_in_that_only_takes_a_note_of_sigterm_while_it_loads_is_killed(tmp_path: Path) -> None:
    with launched(tmp_path, import_lasts=True, ignores_sigterm=True) as pod:
        pod.wait_for("started")
        pod.process.send_signal(signal.SIGINT)
        exit_code, _, errors = pod.end()
    assert (exit_code, pod.termination_message) == (128 + signal.SIGTERM, "")
    assert "not ended after 3 s: killed" in errors


def test_a_stop_waits_for_the_stand_ins_request_and_pulls_readiness_first(tmp_path: Path) -> None:
    with launched(tmp_path) as pod, ThreadPoolExecutor() as pool:
        pod.wait_for_stage("serving")
        request = pool.submit(pod.work)
        pod.wait_for("request-runs")
        pod.stop()
        wait_until(lambda: pod.get("/ready").status_code == 503)
        pod.stop()  # a kubelet that was restarted says it again
        assert pod.get("/ready").json() == {"stage": "draining"}
        assert pod.get("/hisparse/residency").status_code == 200
        assert not request.done()
        (tmp_path / "request-may-end").touch()
        assert request.result(PATIENCE_SECONDS).text == "whole"
        assert (pod.end()[0], pod.termination_message) == (0, "")


def test_requests_of_a_stand_in_that_has_the_model_under_another_name_are_waited_for(tmp_path: Path) -> None:
    with launched(tmp_path, serves="other") as pod, ThreadPoolExecutor() as pool:
        wait_until(lambda: is_listening(pod.engine_port))
        request = pool.submit(pod.work)
        pod.wait_for("request-runs")
        assert pod.get("/startup").status_code == 503
        pod.stop()
        pod.wait_for_stage("draining")
        (tmp_path / "request-may-end").touch()
        assert request.result(PATIENCE_SECONDS).text == "whole"
        assert pod.end()[0] == 0


def test_a_stand_in_that_ignores_sigterm_is_killed_after_its_budget(tmp_path: Path) -> None:
    with launched(tmp_path, plan=replace(PLAN, drain_seconds=1), ignores_sigterm=True) as pod:
        pod.wait_for_stage("serving")
        pod.stop()
        exit_code, _, errors = pod.end()
    assert exit_code == 128 + signal.SIGKILL
    assert "running requests get 1 s" in errors
    assert pod.termination_message.startswith("EngineNotStopped: killed 1 s after it was asked to stop: ")


def test_drain_pulls_readiness_and_returns_after_its_seconds(tmp_path: Path) -> None:
    with launched(tmp_path) as pod, ThreadPoolExecutor() as pool:
        pod.wait_for_stage("serving")
        assert pod.get("/drain?seconds=-1").status_code == 400
        assert pod.get("/ready").status_code == 200
        pool.submit(pod.get, f"/drain?seconds={FOR_EVER_SECONDS}")
        wait_until(lambda: pod.get("/ready").status_code == 503)
        assert pod.get("/live").status_code == 200
        start_seconds = time.monotonic()
        assert drain(0.5, port=pod.status_port) == 0
        assert time.monotonic() - start_seconds >= 0.5
        pod.stop()
        assert pod.end()[0] == 0


def test_the_time_of_a_drain_passes_where_nobody_answers() -> None:
    start_seconds = time.monotonic()
    assert drain(0.5, port=free_port()) == 1
    assert time.monotonic() - start_seconds >= 0.5


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_an_address_of_the_container_itself(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.7", "::ffff:10.0.0.7", "fd00::7", "fe80::7%eth0", "0.0.0.0"])
def test_an_address_of_somebody_else(address: str) -> None:
    assert not is_loopback(address)


def test_nobody_else_may_pull_readiness() -> None:
    state = LaunchState(PLAN)
    client = EngineClient(host="127.0.0.1", port=free_port(), served_name="tiny", api_key=None)
    answers = StatusAnswers(state=state, client=client, residency=lambda *_: {})
    assert answers.answer("/drain?seconds=60", is_local=False).status == 403
    assert answers.answer("/hisparse/progress", is_local=False).status == 200
    assert answers.answer("/drains", is_local=True).status == 404


def test_a_stand_in_that_crashes_leaves_its_last_words_and_its_exit_code(tmp_path: Path) -> None:
    words = f"(EngineCore pid=7) ERROR 11-29 12:00:00 [core.py:1] ValueError: {API_KEY} is no key\nSee root cause above."
    with launched(tmp_path, crash=words, exit_code=7) as pod:
        exit_code, output, errors = pod.end()
    first, *rest = pod.termination_message.splitlines()
    assert exit_code == 7
    assert first.startswith("EngineEnded: by itself, exit code 7, after ")
    assert rest == ["ValueError: *** is no key"]
    # The log is the engine's own.
    assert output == "stand-in: imported\n"
    assert f"{words}\n" in errors


def test_a_stand_in_that_is_killed_takes_the_rest_of_its_group_along(tmp_path: Path) -> None:
    with launched(tmp_path, grandchild=True, crash="", exit_code=-signal.SIGKILL) as pod:
        grandchild = int(pod.wait_for("grandchild").read_text(encoding="ascii"))
        exit_code, _, _ = pod.end()
    assert exit_code == 128 + signal.SIGKILL
    assert "by signal SIGKILL" in pod.termination_message
    assert not is_running(grandchild)


def test_orphans_of_the_stand_in_are_reaped(tmp_path: Path) -> None:
    with launched(tmp_path, orphan=True) as pod:
        orphan = int(pod.wait_for("orphan").read_text(encoding="ascii"))
        wait_until(lambda: not is_running(orphan))
        pod.wait_for_stage("serving")


def test_nothing_is_started_after_a_refused_preflight(tmp_path: Path) -> None:
    with launched(tmp_path, is_refused=True) as pod:
        exit_code, _, errors = pod.end()
    assert (exit_code, pod.termination_message) == (3, "NotEnoughGpus: 0 of 8 GPUs")
    assert "hisparse launch: preflight: refused" in errors
    assert not (tmp_path / "started").exists()


def test_a_stop_during_preflight_starts_nothing(tmp_path: Path) -> None:
    with launched(tmp_path, preflight_seconds=FOR_EVER_SECONDS) as pod:
        pod.wait_for_stage("preflight")
        pod.stop()
        assert pod.end()[0] == 128 + signal.SIGTERM
    assert not (tmp_path / "started").exists()
