"""What an end is explained by, where the kubelet looks for it: `kubectl describe` and the operator's conditions show it.

`Reason: text` first, as preflight's refusals have it.
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hisparse_runtime.vllm.launch.supervise import Ending

TERMINATION_LOG = Path("/dev/termination-log")
# The kubelet cuts what is longer.
_MAX_BYTES = 4096

# Drained, or stopped before it served.
_AS_ASKED = (0, -signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastState:
    """Of the engine just before it ended."""

    engine_seconds: float
    pinned_bytes: int
    planned_pinned_bytes: int
    num_oom_kills: int


def ending_message(ending: Ending, *, last: LastState, words: list[str]) -> str:
    """Empty for an end that was asked for and went as planned. `words`: of the engine, free of secrets."""
    if ending.killed_after_seconds is not None and ending.is_asked:
        return (
            f"EngineNotStopped: killed {ending.killed_after_seconds:.0f} s after it was asked to stop: requests were cut off, or"
            " pinned memory was not given back in time; next step: raise the drain's seconds"
        )
    if ending.is_asked and ending.exit_code in _AS_ASKED:
        return ""
    when = "after it was asked to stop" if ending.is_asked else "by itself"
    first = (
        f"EngineEnded: {when}, {_how(ending.exit_code)}, after {last.engine_seconds:.0f} s, in stage {ending.stage},"
        f" {last.pinned_bytes} of {last.planned_pinned_bytes} bytes of its pools in place"
    )
    lines = [first]
    if last.num_oom_kills:
        lines.append(f"the kernel killed {last.num_oom_kills} of this container's processes for memory: raise its limit")
    return "\n".join([*lines, *words])


def write_termination_message(text: str, *, file: Path) -> None:
    """Cut in front of the last words: they say why. Outside of a pod there is no such file, and none is made."""
    content = text.encode()
    if len(content) > _MAX_BYTES:
        first, _, rest = content.partition(b"\n")
        first = first[: _MAX_BYTES // 2]
        content = first + b"\n" + rest[len(first) + 1 - _MAX_BYTES :]
    if file.exists() and os.access(file, os.W_OK):
        with suppress(OSError):
            file.write_bytes(content)


def _how(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit code {exit_code}"
    with suppress(ValueError):
        return f"by signal {signal.Signals(-exit_code).name}"
    return f"by signal {-exit_code}"
