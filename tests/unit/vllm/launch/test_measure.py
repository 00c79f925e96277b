"""What a container shows of an engine: from files as the kernel writes them."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hisparse_runtime.vllm.launch.measure import Measured, measure, num_oom_kills, pinned_bytes
from tests.unit.vllm.launch.launched import PLAN

GIB = 1 << 30


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("stat", "anon", "oom"),
    [("memory.stat", "anon", "memory.events"), ("memory/memory.stat", "total_rss", "memory/memory.oom_control")],
)
def test_memory_is_read_from_both_versions_of_cgroups(tmp_path: Path, stat: str, anon: str, oom: str) -> None:
    write(tmp_path / stat, f"cache 1\n{anon} 12345\nfile 7\n")
    write(tmp_path / oom, "under_oom 0\noom_kill 2\n")
    assert measure(None, cgroup=tmp_path).anonymous_bytes == 12345
    assert num_oom_kills(cgroup=tmp_path) == 2


def stat(pid: int, name: str, state: str, *, group: int, start_ticks: int = 0) -> str:
    between = " ".join(["0"] * 16)
    return f"{pid} ({name}) {state} 1 {group} {between} {start_ticks} 0 0"


def test_lasting_processes_of_the_group_are_counted_without_zombies(tmp_path: Path) -> None:
    just_now = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    write(tmp_path / "41" / "stat", stat(41, "vllm", "S", group=41))
    write(tmp_path / "42" / "stat", stat(42, "name ) 9 with", "R", group=41))
    write(tmp_path / "43" / "stat", stat(43, "dead", "Z", group=41))
    write(tmp_path / "44" / "stat", stat(44, "other", "S", group=1))
    write(tmp_path / "46" / "stat", stat(46, "lscpu", "S", group=41, start_ticks=just_now + 1000))
    write(tmp_path / "self" / "stat", stat(41, "vllm", "S", group=41))
    (tmp_path / "45").mkdir()  # gone between two looks
    assert measure(41, proc=tmp_path).num_processes == 2


def test_what_cannot_be_seen_is_zero(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert measure(None, shm=absent, cgroup=absent) == Measured(shm_used_bytes=0, anonymous_bytes=0, num_processes=0)


def test_shared_pools_are_what_lies_in_shm() -> None:
    plan = replace(PLAN, host_pool_bytes=8 * GIB, shares_host_pool=True, cpu_bytes_to_use=2 * GIB, working_set_bytes=GIB)
    seen = Measured(shm_used_bytes=3 * GIB, anonymous_bytes=50 * GIB, num_processes=9)
    assert pinned_bytes(seen, plan) == 3 * GIB
    assert pinned_bytes(replace(seen, shm_used_bytes=11 * GIB), plan) == 10 * GIB


def test_private_pools_are_memory_above_the_processes_own() -> None:
    plan = replace(PLAN, host_pool_bytes=8 * GIB, host_pool_copies=2, cpu_bytes_to_use=2 * GIB, working_set_bytes=6 * GIB)
    seen = Measured(shm_used_bytes=GIB, anonymous_bytes=5 * GIB, num_processes=9)
    assert pinned_bytes(seen, plan) == GIB
    assert pinned_bytes(replace(seen, anonymous_bytes=10 * GIB), plan) == 5 * GIB
    assert pinned_bytes(replace(seen, anonymous_bytes=90 * GIB, shm_used_bytes=90 * GIB), plan) == 18 * GIB
