"""The memory limit that is in force, as control groups of both versions tell it."""

from pathlib import Path

import pytest

from hisparse_runtime.vllm.preflight.container.cgroup import memory_limit_bytes
from tests.unit.vllm.preflight.plans import MIB, write

_V1 = "sys/fs/cgroup/memory"
_V2 = "sys/fs/cgroup"


def test_version_one_has_the_containers_own_group_at_the_mounts_root(tmp_path: Path) -> None:
    write(tmp_path, f"{_V1}/memory.limit_in_bytes", "536870912\n")
    write(tmp_path, "proc/self/cgroup", "9:memory:/machine/kubepods/pod1/container\n")
    assert memory_limit_bytes(tmp_path) == 512 * MIB


def test_version_one_has_a_number_for_no_limit(tmp_path: Path) -> None:
    write(tmp_path, f"{_V1}/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit_bytes(tmp_path) is None


def test_a_smaller_limit_of_the_pod_counts(tmp_path: Path) -> None:
    write(tmp_path, f"{_V1}/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path, f"{_V1}/memory.stat", "cache 0\nhierarchical_memory_limit 268435456\nhierarchical_memsw_limit 99\n")
    assert memory_limit_bytes(tmp_path) == 256 * MIB


@pytest.mark.parametrize(("text", "limit_bytes"), [("536870912\n", 512 * MIB), ("max\n", None)])
def test_version_two_in_a_namespace_of_its_own(tmp_path: Path, text: str, limit_bytes: int | None) -> None:
    write(tmp_path, f"{_V2}/memory.max", text)
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    assert memory_limit_bytes(tmp_path) == limit_bytes


def test_version_two_without_a_namespace_takes_the_smallest_on_the_way_up(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/kubepods/pod1/container\n")
    write(tmp_path, f"{_V2}/kubepods/pod1/container/memory.max", "max\n")
    write(tmp_path, f"{_V2}/kubepods/pod1/memory.max", "268435456\n")
    write(tmp_path, f"{_V2}/kubepods/memory.max", "1073741824\n")
    assert memory_limit_bytes(tmp_path) == 256 * MIB


def test_no_control_group_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path) is None


def test_a_group_of_another_namespace_is_not_followed_out_of_the_mount(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/../../other\n")
    write(tmp_path, f"{_V2}/memory.max", "1048576\n")
    assert memory_limit_bytes(tmp_path) == MIB
