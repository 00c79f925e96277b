"""How long an engine may take to start and to stop, from the bytes that it has to move. Budgets, so on the slow side."""

import math
from dataclasses import dataclass

from hisparse_runtime.capacity.units import GIB

# Imports, process start, profiling, CUDA graph capture; vLLM with a model of this size takes minutes without any pool.
_BASE_START_SECONDS = 300
# A node that reads weights from network storage; local NVMe is several times faster.
_WEIGHTS_BYTES_PER_SECOND = GIB
_UNKNOWN_WEIGHTS_SECONDS = 1800
# Faulting pages in and cudaHostRegister, which holds a driver-wide lock: hundreds of GiB take minutes (vLLM #42632).
_PIN_BYTES_PER_SECOND = 2 * GIB
# Unpinning holds the same lock; killed meanwhile, a process stays in the kernel (prime-rl #2949 gives it 600 s).
_UNPIN_BYTES_PER_SECOND = 2 * GIB
ENDPOINT_GRACE_SECONDS = 15
"""Time for endpoints to leave the routers before an engine hears that it is to stop."""
_DRAIN_SECONDS = 120
_EXIT_SECONDS = 30
# For what an engine that was killed then leaves behind as its reason.
_LAST_WORDS_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StartStop:
    """Seconds until a probe may give up, and between the request to stop and SIGKILL.

    The latter is ENDPOINT_GRACE_SECONDS, `drain_seconds` for running requests, and `unpin_seconds` for workers to give their
    memory back and go.
    """

    startup_seconds: int
    drain_seconds: int
    unpin_seconds: int
    termination_seconds: int
    arithmetic: tuple[str, ...]


def start_stop(
    *, weights_bytes: int | None, pinned_bytes: int, host_pool_pins: int, offload_bytes: int, pods_per_node: int = 1
) -> StartStop:
    """`pinned_bytes`: host pools of the pod, pinned `host_pool_pins` times at start-up; `offload_bytes`: pinned once.

    `pods_per_node` may pin and unpin at the same time, and the driver lets one of them at a time.
    """
    weights_seconds = _UNKNOWN_WEIGHTS_SECONDS if weights_bytes is None else math.ceil(weights_bytes / _WEIGHTS_BYTES_PER_SECOND)
    pin_seconds = math.ceil((pinned_bytes * host_pool_pins + offload_bytes) * pods_per_node / _PIN_BYTES_PER_SECOND)
    unpin_seconds = math.ceil((pinned_bytes + offload_bytes) * pods_per_node / _UNPIN_BYTES_PER_SECOND)
    startup_seconds = _BASE_START_SECONDS + weights_seconds + pin_seconds
    exit_seconds = _EXIT_SECONDS + _LAST_WORDS_SECONDS
    termination_seconds = ENDPOINT_GRACE_SECONDS + _DRAIN_SECONDS + unpin_seconds + exit_seconds
    unknown = " of unknown size" if weights_bytes is None else ""
    neighbours = f", {pods_per_node} pods on the node" if pods_per_node > 1 else ""
    pins = f" ({host_pool_pins} x host pool{neighbours})" if pinned_bytes else ""
    start = (
        f"start-up: {_BASE_START_SECONDS} s + {weights_seconds} s weights{unknown} + {pin_seconds} s pinning host memory{pins}"
        f" = {startup_seconds} s"
    )
    stop = (
        f"termination: {ENDPOINT_GRACE_SECONDS} s routers + {_DRAIN_SECONDS} s running requests + {unpin_seconds} s"
        f" unpinning + {exit_seconds} s exit = {termination_seconds} s"
    )
    return StartStop(
        startup_seconds=startup_seconds,
        drain_seconds=_DRAIN_SECONDS,
        unpin_seconds=unpin_seconds + _EXIT_SECONDS,
        termination_seconds=termination_seconds,
        arithmetic=(start, stop),
    )
