"""All of it: a tree that stands for the container in, a report out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.vllm.pod_plan import PodPlan, pod_plan_to_json
from hisparse_runtime.vllm.preflight import EXIT_REFUSED, Finding, Reason, Report, Severity, run_preflight
from hisparse_runtime.vllm.preflight import run as run_module
from hisparse_runtime.vllm.preflight.facts import facts_to_json
from tests.unit.vllm.preflight.plans import CONFIG, GIB, MIB, facts, plan, write


def _report(*findings: Finding) -> Report:
    return Report(findings=findings, facts={})


def _finding(severity: Severity, message: str, reason: Reason = Reason.NOT_ENOUGH_GPUS) -> Finding:
    return Finding(reason=reason, severity=severity, message=message)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container that the plan fits."""
    (tmp_path / "dev/shm").mkdir(parents=True)
    for number in range(2):
        write(tmp_path, f"dev/nvidia{number}", "")
    write(tmp_path, "proc/meminfo", f"MemTotal: {64 * MIB} kB\nMemAvailable: {60 * MIB} kB\nHugetlb: 0 kB\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", str(17 * GIB))
    write(tmp_path, "site/vllm-0.33.0.dist-info/METADATA", "Metadata-Version: 2.4\nName: vllm\nVersion: 0.33.0\n")
    write(tmp_path, "models/glm/config.json", json.dumps(CONFIG))
    monkeypatch.setattr(sys, "path", [*sys.path, "/site"])
    return tmp_path


def _fitting(root: Path) -> PodPlan:
    """Its shared memory is of the size of the file system below `root`, and its pools are private: they do not have to fit."""
    space = os.statvfs(root)
    return plan(shm_bytes=space.f_blocks * space.f_frsize, shares_host_pool=False, cpu_bytes_to_use=0)


def test_a_container_that_fits_passes_and_says_what_it_removed(root: Path) -> None:
    write(root, "dev/shm/vllm_offload_a.mmap", "x")
    report = run_preflight(_fitting(root), model="/models/glm", planned_config=CONFIG, root=root)
    assert [(finding.reason, finding.severity) for finding in report.findings if finding.severity is not Severity.WARNING] == [
        (Reason.STALE_SHARED_MEMORY, Severity.NOTE)
    ]
    assert {finding.reason for finding in report.findings} <= {Reason.STALE_SHARED_MEMORY, Reason.MEMLOCK_TOO_LOW}
    assert report.passed
    assert report.exit_code == 0
    assert report.termination_message() == ""
    assert report.lines()[0] == "preflight: passed"
    content = json.loads(json.dumps(report.to_json()))
    assert content["facts"]["memory_limit_bytes"] == 17 * GIB
    assert content["facts"]["devices"]["num_gpus"] == 2
    assert content["facts"]["model"] == str(root / "models/glm/config.json")


def test_all_that_is_wrong_is_said_at_once_refusals_first(root: Path) -> None:
    (root / "dev/nvidia1").unlink()
    write(root, "sys/fs/cgroup/memory.max", str(GIB))
    report = run_preflight(_fitting(root), model="", planned_config=None, root=root)
    assert not report.passed
    assert report.exit_code == EXIT_REFUSED == 3
    assert [finding.reason for finding in report.findings if finding.severity is Severity.REFUSED] == [
        Reason.NOT_ENOUGH_GPUS,
        Reason.HOST_MEMORY_LIMIT_TOO_SMALL,
    ]
    assert report.findings[0].severity is Severity.REFUSED
    assert [line.partition(":")[0] for line in report.termination_message().splitlines()] == [
        "NotEnoughGpus",
        "HostMemoryLimitTooSmall",
    ]
    assert report.to_json()["findings"][0]["reason"] == "NotEnoughGpus"


@pytest.mark.parametrize("part", ["read_words", "gather_facts", "check_numa", "check_bugs"])
def test_a_mistake_of_preflight_keeps_no_engine_from_starting(root: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(run_module, part, fail)
    report = run_preflight(_fitting(root), model="/models/glm", planned_config=CONFIG, root=root)
    assert report.passed
    failed = [finding for finding in report.findings if finding.reason is Reason.CHECK_FAILED]
    assert [finding.severity for finding in failed] == [Severity.WARNING]
    assert f"ZeroDivisionError at {Path(__file__).name}:" in failed[0].message
    assert "secret" not in failed[0].message


def test_an_empty_tree_is_no_traceback(tmp_path: Path) -> None:
    report = run_preflight(plan(), model="a/b", planned_config=CONFIG, words=["nonsense"], root=tmp_path)
    assert {finding.reason for finding in report.findings} <= set(Reason) - {Reason.CHECK_FAILED}
    assert not report.passed


def test_reasons_are_words_that_kubernetes_takes_for_a_condition() -> None:
    assert all(reason.value.isascii() and reason.value.isalpha() and reason.value[0].isupper() for reason in Reason)


def test_the_termination_message_has_refusals_only() -> None:
    report = _report(_finding(Severity.REFUSED, "one"), _finding(Severity.WARNING, "two"), _finding(Severity.NOTE, "three"))
    assert report.termination_message() == "NotEnoughGpus: one"
    assert report.lines() == [
        "preflight: refused, the engine is not started",
        "preflight: refused: NotEnoughGpus: one",
        "preflight: warning: NotEnoughGpus: two",
        "preflight: note: NotEnoughGpus: three",
    ]


@given(st.lists(st.text(max_size=3000), min_size=1, max_size=4))
def test_the_termination_message_is_no_longer_than_kubernetes_keeps(texts: list[str]) -> None:
    message = _report(*(_finding(Severity.REFUSED, text) for text in texts)).termination_message()
    assert len(message.encode()) <= 4096
    assert message.startswith("NotEnoughGpus: ")
    whole = "\n".join(f"NotEnoughGpus: {text}" for text in texts)
    assert message == whole or (message.endswith(" ...") and whole.startswith(message.removesuffix(" ...")))


def _preflight(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hisparse_runtime.vllm.preflight", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_command_refuses_with_its_own_exit_status(tmp_path: Path) -> None:
    planned = write(tmp_path, "plan.json", json.dumps(pod_plan_to_json(plan(gpus=999))))
    config = write(tmp_path, "config.json", json.dumps(CONFIG))
    words = ["--", "vllm", "serve", "zai-org/GLM-5.3", "--revision=abc"]
    done = _preflight("--plan", str(planned), "--config", str(config), "-o", "json", *words)
    assert done.returncode == EXIT_REFUSED, done.stderr
    content = json.loads(done.stdout)
    assert content["passed"] is False
    assert "NotEnoughGpus" in [finding["reason"] for finding in content["findings"]]


def test_a_plan_that_cannot_be_read_is_refused_with_a_reason(tmp_path: Path) -> None:
    broken = write(tmp_path, "plan.json", '{"gpus": "8"}')
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff")
    missing = tmp_path / "none.json"
    for file, says in ((broken, "plan.json: "), (missing, "none.json cannot be read: No such file"), (binary, "is no text")):
        done = _preflight("--plan", str(file), "--config", str(tmp_path / "none"))
        assert done.returncode == EXIT_REFUSED, done.stderr
        assert "InvalidPlan: " in done.stdout
        assert says in done.stdout


def test_every_fact_is_data() -> None:
    assert json.loads(json.dumps(facts_to_json(facts())))["leftovers"] == []
