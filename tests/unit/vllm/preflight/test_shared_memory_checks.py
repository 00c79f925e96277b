"""Space in /dev/shm, and what a killed engine left there."""

import os
from pathlib import Path

import pytest

from hisparse_runtime.vllm.preflight.checks.shared_memory import check_leftovers, check_shared_memory
from hisparse_runtime.vllm.preflight.container.shared_memory import (
    Fate,
    Leftover,
    SharedMemory,
    shared_memory,
    sweep_leftovers,
)
from hisparse_runtime.vllm.preflight.findings import Reason, Severity
from tests.unit.vllm.preflight.plans import GIB, facts, plan, write

_NOW_SECONDS = 2_000_000_000.0


def _space(total_gib: int, free_bytes: int) -> SharedMemory:
    return SharedMemory(total_bytes=total_gib * GIB, free_bytes=free_bytes)


@pytest.mark.parametrize(
    ("space", "severity"),
    [
        (_space(12, 12 * GIB), None),
        (_space(12, 10 * GIB), None),
        (_space(12, 10 * GIB - 1), Severity.REFUSED),
        (_space(11, 11 * GIB), Severity.WARNING),
        (_space(9, 9 * GIB), Severity.REFUSED),
        (None, Severity.REFUSED),
    ],
)
def test_pools_have_to_fit_into_free_space(space: SharedMemory | None, severity: Severity | None) -> None:
    finding = check_shared_memory(plan(), facts(shared_memory=space))
    assert (None if finding is None else finding.severity) is severity
    if finding is not None:
        assert finding.reason is Reason.SHARED_MEMORY_TOO_SMALL
        assert "sizeLimit 12.00 GiB" in finding.message


def test_private_pools_need_no_space_there() -> None:
    planned = plan(shares_host_pool=False, host_pool_copies=2, cpu_bytes_to_use=0, shm_bytes=GIB)
    assert check_shared_memory(planned, facts(shared_memory=None)) is None
    assert check_shared_memory(planned, facts(shared_memory=_space(1, 0))) is None


def test_a_tier_of_every_replica_needs_space() -> None:
    planned = plan(data_parallel_size=3, shares_host_pool=False, shm_bytes=7 * GIB)
    assert check_shared_memory(planned, facts(shared_memory=_space(7, 6 * GIB))) is None
    finding = check_shared_memory(planned, facts(shared_memory=_space(7, 6 * GIB - 1)))
    assert finding is not None
    assert "need 6.00 GiB" in finding.message


def test_files_that_stay_are_named_beside_the_space_that_they_take() -> None:
    leftover = Leftover(name="vllm_offload_a.mmap", size_bytes=8 * GIB, age_seconds=3600, fate=Fate.HELD, detail="process 9")
    finding = check_shared_memory(plan(), facts(shared_memory=_space(12, 4 * GIB), leftovers=(leftover,)))
    assert finding is not None
    assert finding.message.startswith(
        "12.00 GiB in /dev/shm, 4.00 GiB of it free, and the pools in it need 10.00 GiB beside vllm_offload_a.mmap (8.00 GiB,"
        " 3,600 s old): "
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dev/shm").mkdir(parents=True)
    return tmp_path


def _planned_bytes(root: Path) -> int:
    space = os.statvfs(root)
    return space.f_blocks * space.f_frsize


def test_what_a_killed_engine_left_is_removed_and_nothing_else(root: Path) -> None:
    region = write(root, "dev/shm/vllm_offload_hisparse_a_dp0.mmap", "x" * 8192)
    os.utime(region, (_NOW_SECONDS - 90, _NOW_SECONDS - 90))
    for name in ("vllm_offload_b.mmap.1", "psm_1a2b3c4d", "nccl-XyZ", "torch_1_2_3"):
        write(root, f"dev/shm/{name}", "x")
    kept = write(root, "dev/shm/somebody-elses", "x")
    (root / "dev/shm/vllm_offload_c.mmap").symlink_to(kept)
    swept = sweep_leftovers(root, planned_bytes=_planned_bytes(root), now_seconds=_NOW_SECONDS)
    assert {leftover.fate for leftover in swept} == {Fate.REMOVED}
    found = {leftover.name: leftover for leftover in swept}
    assert set(found) == {region.name, "vllm_offload_b.mmap.1", "psm_1a2b3c4d", "nccl-XyZ", "torch_1_2_3"}
    assert (found[region.name].size_bytes, found[region.name].age_seconds) == (8192, 90)
    assert {path.name for path in (root / "dev/shm").iterdir()} == {kept.name, "vllm_offload_c.mmap"}


def test_a_file_that_was_never_filled_takes_no_memory(root: Path) -> None:
    region = write(root, "dev/shm/vllm_offload_a.mmap", "")
    os.truncate(region, GIB)
    (swept,) = sweep_leftovers(root, planned_bytes=_planned_bytes(root), now_seconds=_NOW_SECONDS)
    assert swept.size_bytes == 0


def test_a_file_that_a_process_has_open_or_mapped_stays(root: Path) -> None:
    opened, mapped = (write(root, f"dev/shm/vllm_offload_{name}.mmap", "x") for name in ("opened", "mapped"))
    (root / "proc/77/fd").mkdir(parents=True)
    (root / "proc/77/fd/5").symlink_to("/dev/shm/vllm_offload_opened.mmap")  # noqa: S108 - where the process has it
    write(
        root,
        "proc/88/maps",
        "7f00-7f01 rw-s 00000000 00:2a 3                  /dev/shm/vllm_offload_mapped.mmap\n7f02-7f03 rw-p 0 0 0\n",
    )
    swept = sweep_leftovers(root, planned_bytes=_planned_bytes(root), now_seconds=_NOW_SECONDS)
    assert {(leftover.name, leftover.fate, leftover.detail) for leftover in swept} == {
        (opened.name, Fate.HELD, "process 77"),
        (mapped.name, Fate.HELD, "process 88"),
    }
    assert opened.exists()
    assert mapped.exists()


def test_nothing_is_removed_beside_a_process_that_may_not_be_looked_into(root: Path) -> None:
    region = write(root, "dev/shm/vllm_offload_a.mmap", "x")
    (root / "proc/1/maps").mkdir(parents=True)  # cannot be read
    (root / "proc/2").mkdir()  # has just ended
    (swept,) = sweep_leftovers(root, planned_bytes=_planned_bytes(root), now_seconds=_NOW_SECONDS)
    assert (swept.fate, swept.detail) == (Fate.HELD, "process 1, perhaps: it may not be looked into")
    assert region.exists()


def test_in_a_shared_memory_of_another_size_nothing_is_touched(root: Path) -> None:
    region = write(root, "dev/shm/vllm_offload_a.mmap", "x")
    (swept,) = sweep_leftovers(root, planned_bytes=_planned_bytes(root) // 2, now_seconds=_NOW_SECONDS)
    assert swept.fate is Fate.FOREIGN
    assert region.exists()


def test_a_size_that_is_no_whole_page_is_still_the_pods_own(root: Path) -> None:
    write(root, "dev/shm/vllm_offload_a.mmap", "x")
    (swept,) = sweep_leftovers(root, planned_bytes=_planned_bytes(root) - 1, now_seconds=_NOW_SECONDS)
    assert swept.fate is Fate.REMOVED


def test_a_file_that_cannot_be_removed_is_a_refusal(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    write(root, "dev/shm/vllm_offload_a.mmap", "x" * 4096)
    monkeypatch.setattr(Path, "unlink", refuse)
    swept = sweep_leftovers(root, planned_bytes=_planned_bytes(root), now_seconds=_NOW_SECONDS)
    finding = check_leftovers(facts(leftovers=swept))
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.STALE_SHARED_MEMORY, Severity.REFUSED)
    assert "vllm_offload_a.mmap (4.0 KiB," in finding.message
    assert "Operation not permitted" in finding.message


@pytest.mark.parametrize(
    ("fate", "severity"), [(Fate.REMOVED, Severity.NOTE), (Fate.HELD, Severity.WARNING), (Fate.FOREIGN, Severity.WARNING)]
)
def test_leftovers_that_do_not_keep_an_engine_from_starting_are_said(fate: Fate, severity: Severity) -> None:
    leftovers = tuple(Leftover(name=f"psm_{n}", size_bytes=n, age_seconds=0, fate=fate, detail="process 1") for n in range(6))
    finding = check_leftovers(facts(leftovers=leftovers))
    assert finding is not None
    assert finding.severity is severity
    assert (
        "psm_5 (5 B, 0 s old), psm_4 (4 B, 0 s old), psm_3 (3 B, 0 s old), psm_2 (2 B, 0 s old), 2 more (1 B)" in finding.message
    )


def test_an_empty_shared_memory_says_nothing(root: Path) -> None:
    assert sweep_leftovers(root, planned_bytes=1, now_seconds=_NOW_SECONDS) == ()
    assert check_leftovers(facts()) is None


def test_space_is_that_of_the_mount(root: Path) -> None:
    space = os.statvfs(root)
    found = shared_memory(root)
    assert found is not None
    assert found.total_bytes == space.f_blocks * space.f_frsize
    assert shared_memory(root / "nowhere") is None
    assert sweep_leftovers(root / "nowhere", planned_bytes=1, now_seconds=_NOW_SECONDS) == ()
