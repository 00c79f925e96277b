"""Memory that has to be locked or filled: asked of the kernel, judged by who needs it."""

import multiprocessing
import os
import resource

import pytest

from hisparse_runtime.vllm.preflight.checks.pinning import check_memlock, check_populate
from hisparse_runtime.vllm.preflight.container.devices import Devices
from hisparse_runtime.vllm.preflight.container.locking import Memlock, can_populate, try_memlock
from hisparse_runtime.vllm.preflight.findings import Reason, Severity
from tests.unit.vllm.preflight.plans import GIB, MIB, facts, plan

_NOBODY = 65534
_LOW = Memlock(limit_bytes=8 * MIB, tried_bytes=24 * MIB, error="ENOMEM: Cannot allocate memory")
_RDMA = Devices(num_gpus=2, driver_version="570.124.06", has_rdma=True)


def _as_nobody(limit_bytes: int) -> None:
    """A process as in a container without IPC_LOCK."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit_bytes, limit_bytes))
    if os.geteuid() == 0:
        os.setuid(_NOBODY)


def _tried(limit_bytes: int, *, needed_bytes: int) -> Memlock:
    _, hard_bytes = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard_bytes != resource.RLIM_INFINITY and hard_bytes < limit_bytes:
        pytest.skip(f"RLIMIT_MEMLOCK of this machine is {hard_bytes} bytes")
    with multiprocessing.get_context("fork").Pool(1, initializer=_as_nobody, initargs=(limit_bytes,)) as pool:
        return pool.apply(try_memlock, (needed_bytes,))


def test_a_pool_above_the_limit_is_not_locked() -> None:
    assert _tried(8 * MIB, needed_bytes=64 * GIB) == _LOW


def test_a_limit_below_what_is_tried_first_is_found_whatever_the_pool() -> None:
    tried = _tried(8 * MIB, needed_bytes=0)
    assert (tried.tried_bytes, tried.error) == (16 * MIB, "ENOMEM: Cannot allocate memory")


@pytest.mark.parametrize(
    ("limit_bytes", "needed_bytes", "tried_bytes"),
    [
        (64 * MIB, 64 * MIB, 16 * MIB),
        (64 * MIB, 64 * MIB + 1, 80 * MIB),
        (0, GIB, 16 * MIB),
        (resource.RLIM_INFINITY, 512 * GIB, 16 * MIB),
    ],
)
def test_more_than_the_limit_is_tried_where_the_pool_needs_more(
    monkeypatch: pytest.MonkeyPatch, limit_bytes: int, needed_bytes: int, tried_bytes: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit_bytes, resource.RLIM_INFINITY))
    assert try_memlock(needed_bytes).tried_bytes == tried_bytes


@pytest.mark.parametrize(
    ("has_nixl", "devices", "severity"),
    [(True, _RDMA, Severity.REFUSED), (True, facts().devices, Severity.WARNING), (False, _RDMA, Severity.WARNING)],
)
def test_a_low_limit_refuses_only_where_nixl_registers_with_an_rdma_device(
    has_nixl: bool,  # noqa: FBT001 - a column
    devices: Devices,
    severity: Severity,
) -> None:
    finding = check_memlock(plan(), facts(memlock=_LOW, devices=devices), has_nixl=has_nixl)
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.MEMLOCK_TOO_LOW, severity)
    assert "24.0 MiB could not be locked (ENOMEM: Cannot allocate memory; RLIMIT_MEMLOCK is 8.0 MiB)" in finding.message
    assert "IPC_LOCK" in finding.message


def test_a_low_limit_is_nobodys_matter_without_a_pool() -> None:
    assert check_memlock(plan(host_pool_bytes=0), facts(memlock=_LOW), has_nixl=False) is None


def test_memory_that_could_be_locked_says_nothing() -> None:
    assert check_memlock(plan(), facts(devices=_RDMA), has_nixl=True) is None


def test_an_old_kernel_is_a_warning_where_regions_are_filled() -> None:
    finding = check_populate(plan(), facts(can_populate=False))
    assert finding is not None
    assert (finding.reason, finding.severity) == (Reason.KERNEL_TOO_OLD, Severity.WARNING)
    assert "10.00 GiB" in finding.message
    assert check_populate(plan(shares_host_pool=False, cpu_bytes_to_use=0), facts(can_populate=False)) is None
    assert check_populate(plan(), facts()) is None


def test_the_kernel_of_this_machine_is_asked() -> None:
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    assert can_populate() is (release >= (5, 14))
