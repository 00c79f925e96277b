"""What keeps the launcher from starting an engine, as its process tells it, and what its parts make of the plan."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hisparse_runtime.vllm.launch.command import EngineCommand, engine_command
from hisparse_runtime.vllm.launch.options import parse_options
from hisparse_runtime.vllm.launch.parts import vllm_parts
from hisparse_runtime.vllm.launch.run import LaunchOptions, Parts, launch
from hisparse_runtime.vllm.pod_plan import STATUS_PORT, PodPlanError, pod_plan_to_json
from hisparse_runtime.vllm.preflight import Report
from tests.unit.vllm.launch.launched import PLAN, free_port

PASSING = Parts(preflight=lambda *_: Report(findings=(), facts={}), residency=lambda *_: lambda *_: {})


@pytest.fixture
def options(tmp_path: Path) -> LaunchOptions:
    (tmp_path / "plan.json").write_text(json.dumps(pod_plan_to_json(PLAN)), encoding="utf-8")
    (tmp_path / "termination-log").touch()
    return LaunchOptions(
        plan_file=tmp_path / "plan.json",
        words=("vllm", "serve", "model"),
        environment={},
        status_port=free_port(),
        termination_log=tmp_path / "termination-log",
    )


def refused(options: LaunchOptions, *, parts: Parts = PASSING) -> tuple[int, str]:
    """Exit code and termination message."""
    return launch(options, parts=parts), options.termination_log.read_text(encoding="utf-8")


def test_a_plan_that_is_absent_or_of_another_version_is_refused(options: LaunchOptions) -> None:
    options.plan_file.write_text('{"vllm_version": "0.32", "shape": 1}', encoding="utf-8")
    exit_code, message = refused(options)
    assert exit_code == 3
    assert message.startswith(f"InvalidPlan: {options.plan_file}: ")
    exit_code, message = refused(replace(options, plan_file=options.plan_file.with_name("absent")))
    assert exit_code == 3
    assert "next step: mount the plan's ConfigMap" in message


def test_words_that_are_no_command_are_refused(options: LaunchOptions) -> None:
    exit_code, message = refused(replace(options, words=()))
    assert (exit_code, message.partition(":")[0]) == (2, "InvalidCommand")


def test_a_taken_status_port_is_refused_with_its_number(options: LaunchOptions) -> None:
    with socket.create_server(("0.0.0.0", options.status_port)):
        exit_code, message = refused(options)
    assert exit_code == 2
    assert message.startswith(f"StatusPortTaken: port {options.status_port} for probes: ")


def test_what_starts_an_engine_says_so_as_a_process(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "hisparse_runtime.vllm.launch",
        "--plan",
        str(tmp_path / "absent"),
        "--",
        "vllm",
        "serve",
        "m",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert done.stderr.startswith("hisparse launch: InvalidPlan: ")
    assert len(done.stderr.splitlines()) == 1


def test_options_are_those_of_a_pod_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"A": "1"})
    given = parse_options(["--status-port", "9001", "--", "vllm", "serve", "m", "--plan", "theirs"])
    assert (given.status_port, given.words[-2:], given.environment) == (9001, ("--plan", "theirs"), {"A": "1"})
    left_out = parse_options([])
    assert (str(left_out.plan_file), left_out.status_port, left_out.words) == ("/etc/hisparse/plan.json", STATUS_PORT, ())
    with pytest.raises(SystemExit, match="2"):
        parse_options(["vllm", "serve", "m"])


def test_sizes_that_metrics_do_not_have_are_the_plans(options: LaunchOptions) -> None:
    told = replace(PLAN, vllm_version="0.32", device_block_bytes=1000, cpu_bytes_to_use=5000)
    report = vllm_parts(options.plan_file).residency(told, engine_command(options.words))
    sizes = 'num_gpu_blocks="11",kv_cache_memory_bytes="None"'
    text = f"""vllm:num_requests_running{{engine="0"}} 1.0
vllm:cache_config_info{{engine="0",{sizes}}} 1.0
vllm:kv_cache_usage_perc{{engine="0"}} 0.5
vllm:kv_offload_cpu_cache_usage_perc{{engine="0"}} 0.25
"""
    assert report(text, 1.0)["device_pool"] == {"capacity_bytes": 10_000, "used_bytes": 5_000}
    assert report(text, 1.0)["offload"] == {"capacity_bytes": 5_000, "used_bytes": 1_250}


def test_preflight_compares_with_the_config_beside_the_plan(options: LaunchOptions) -> None:
    command: EngineCommand = engine_command(options.words)
    options.plan_file.with_name("config.json").write_text("{", encoding="utf-8")
    with pytest.raises(PodPlanError, match="next step"):
        vllm_parts(options.plan_file).preflight(PLAN, command, options.words)
