"""Output that is copied unchanged, and what is kept of it for the end."""

import os
import signal
from pathlib import Path

import pytest

from hisparse_runtime.vllm.launch.last_words import LastWords
from hisparse_runtime.vllm.launch.stages import Stage
from hisparse_runtime.vllm.launch.supervise import Ending
from hisparse_runtime.vllm.launch.termination import LastState, ending_message, write_termination_message

LAST = LastState(engine_seconds=99.6, pinned_bytes=3, planned_pinned_bytes=7, num_oom_kills=0)


def told(text: bytes, tmp_path: Path, *, environment: dict[str, str] | None = None) -> list[str]:
    """Lines that are kept of `text`, which must have been copied as it is."""
    words = LastWords(environment or {})
    reader, writer = os.pipe()
    target = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    words.copy(reader, target, keeps_last_lines=True)
    os.write(writer, text)
    os.close(writer)
    words.wait(timeout_seconds=30)
    os.close(target)
    assert (tmp_path / "log").read_bytes() == text
    return words.lines()


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (
            "(Worker_TP0 pid=204) ERROR 11-29 12:04:05 [multiproc_executor.py:870] torch.OutOfMemoryError: CUDA out of memory.",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        (
            "(APIServer pid=1) RuntimeError: Engine core initialization failed.",
            "RuntimeError: Engine core initialization failed.",
        ),
        ("ValueError: host pool", "ValueError: host pool"),
        ("Exception: no word", "Exception: no word"),
        ("vllm serve: error: argument --x: invalid", "vllm serve: error: argument --x: invalid"),
    ],
)
def test_the_line_that_says_why_is_found_behind_vllms_prefixes(line: str, kept: str, tmp_path: Path) -> None:
    text = f"(APIServer pid=1) INFO 11-29 12:04:05 [utils.py:1] non-default args: {{'a': 'Error: no'}}\n{line}\n  at exit\n"
    assert told(text.encode(), tmp_path) == [kept]


def test_an_error_that_every_process_repeats_is_kept_once_and_only_the_last_six(tmp_path: Path) -> None:
    lines = "".join(f"ValueError: {number}\n" for number in (1, 2, 3, 2, 4, 5, 6, 7))
    assert told(lines.encode(), tmp_path) == [f"ValueError: {number}" for number in (3, 2, 4, 5, 6, 7)]


def test_without_errors_the_last_lines_are_kept(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(20)) + "terminate called without an active exception"
    assert told(lines.encode(), tmp_path)[-2:] == ["line 19", "terminate called without an active exception"]


def test_secrets_of_the_environment_are_masked_and_any_bytes_survive(tmp_path: Path) -> None:
    environment = {"HF_TOKEN": "hf_canary", "AWS_SECRET_ACCESS_KEY": "canary2", "HOME": "/home/me", "KEY": "e"}
    text = b"\xff\x00\nOSError: hf_canary and canary2 in /home/me\n"
    assert told(text, tmp_path, environment=environment) == ["OSError: *** and *** in /home/me"]


def ending(**changes: object) -> Ending:
    fields = {"stage": Stage.PINNING, "exit_code": 1, "is_asked": False, "killed_after_seconds": None} | changes
    return Ending(**fields)  # type: ignore[arg-type]  # of the right types one by one


def test_an_end_by_itself_tells_how_far_it_was() -> None:
    message = ending_message(ending(exit_code=-signal.SIGKILL), last=LAST, words=["ValueError: x"])
    assert message.splitlines() == [
        "EngineEnded: by itself, by signal SIGKILL, after 100 s, in stage pinning, 3 of 7 bytes of its pools in place",
        "ValueError: x",
    ]


def test_processes_that_the_kernel_killed_for_memory_are_named() -> None:
    last = LastState(engine_seconds=1, pinned_bytes=0, planned_pinned_bytes=0, num_oom_kills=2)
    assert "the kernel killed 2 of this container's processes for memory" in ending_message(ending(), last=last, words=[])


def test_an_end_that_was_asked_for_needs_no_words() -> None:
    for exit_code in (0, -signal.SIGTERM):
        assert ending_message(ending(is_asked=True, exit_code=exit_code), last=LAST, words=["ValueError: old"]) == ""


def test_a_failure_while_it_drains_is_told() -> None:
    first, *rest = ending_message(ending(is_asked=True), last=LAST, words=["ValueError: x"]).splitlines()
    assert first.startswith("EngineEnded: after it was asked to stop, exit code 1, ")
    assert rest == ["ValueError: x"]


def test_a_long_message_keeps_its_first_line_and_its_end(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    write_termination_message("EngineEnded: x\n" + "y" * 9000 + "end", file=file)
    assert not file.exists()
    file.touch()
    write_termination_message("EngineEnded: x\n" + "y" * 9000 + "end", file=file)
    content = file.read_text(encoding="utf-8")
    assert len(content) == 4096
    assert content.startswith("EngineEnded: x\nyy")
    assert content.endswith("yend")
