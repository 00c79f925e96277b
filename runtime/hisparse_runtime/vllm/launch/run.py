"""The main line: preflight, the engine, and an exit code that tells how it went."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hisparse_runtime.vllm.launch.bytecode import with_bytecode_cache
from hisparse_runtime.vllm.launch.command import CommandError, EngineCommand, engine_command
from hisparse_runtime.vllm.launch.engine_client import EngineClient, NoAnswerError
from hisparse_runtime.vllm.launch.engine_process import EngineProcess, EngineStartError
from hisparse_runtime.vllm.launch.last_words import LastWords
from hisparse_runtime.vllm.launch.measure import measure, num_oom_kills
from hisparse_runtime.vllm.launch.stale_regions import remove_stale_regions
from hisparse_runtime.vllm.launch.state import LaunchState
from hisparse_runtime.vllm.launch.status_server import Residency, StatusServer, StatusServerError
from hisparse_runtime.vllm.launch.supervise import WAITED_SIGNALS, Ending, supervise
from hisparse_runtime.vllm.launch.termination import TERMINATION_LOG, LastState, ending_message, write_termination_message
from hisparse_runtime.vllm.pod_plan import STATUS_PORT, PodPlan, PodPlanError, read_pod_plan
from hisparse_runtime.vllm.preflight import EXIT_REFUSED, Report

EXIT_MISUSE = 2
EXIT_NO_PROGRAM = 127
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 4.0
_LAST_OUTPUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What is asked before the engine is started, and about it then."""

    preflight: Callable[[PodPlan, EngineCommand, Sequence[str]], Report]
    residency: Callable[[PodPlan, EngineCommand], Residency]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """`words`: the engine's command, as `serve_command` renders it."""

    plan_file: Path
    words: tuple[str, ...]
    environment: Mapping[str, str]
    status_port: int = STATUS_PORT
    termination_log: Path = TERMINATION_LOG


def launch(options: LaunchOptions, *, parts: Parts) -> int:
    """The exit code: the engine's; 128 + N where a signal ended it; EXIT_REFUSED or EXIT_MISUSE without an engine.

    SIGTERM must have a handler that ends the process: it is left in place until there is an engine.
    """
    try:
        plan = read_pod_plan(options.plan_file.read_text(encoding="utf-8"), source=str(options.plan_file))
        command = engine_command(options.words)
        client = EngineClient(
            host=command.host,
            port=command.port,
            served_name=command.served_name,
            api_key=options.environment.get("VLLM_API_KEY"),
        )
        state = LaunchState(plan)
        with _Blocked():
            # The server's threads inherit that: signals are for this one.
            StatusServer(state=state, client=client, residency=parts.residency(plan, command), port=options.status_port)
        # The only launcher of a container is its first process, or shares them with other containers.
        if os.getpid() == 1 and (freed_bytes := remove_stale_regions()):
            _say(f"removed {freed_bytes} bytes of a killed engine from /dev/shm")
        report = parts.preflight(plan, command, options.words)
    except (PodPlanError, CommandError, StatusServerError, OSError, UnicodeDecodeError) as error:
        return _refuse(str(error), options, exit_code=EXIT_MISUSE)
    for line in report.lines():
        _say(line)
    if not report.passed:
        return _refuse(report.termination_message(), options, exit_code=EXIT_REFUSED)
    words = LastWords(options.environment)
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_SIGNALS)
    try:
        engine = EngineProcess(command.arguments, with_bytecode_cache(options.environment), words=words)
    except EngineStartError as error:
        return _refuse(str(error), options, exit_code=EXIT_NO_PROGRAM)
    state.engine_started(engine.process_group)
    threading.Thread(target=_watch_start, args=(state, client), name="start", daemon=True).start()
    ending = supervise(engine, plan=plan, state=state, is_healthy=lambda: _is_healthy(client), say=_say)
    words.wait(timeout_seconds=_LAST_OUTPUT_SECONDS)
    return _report_end(ending, state=state, words=words, options=options)


def _watch_start(state: LaunchState, client: EngineClient) -> None:
    """Until the engine answers for its model: from then on, its probes ask it themselves."""
    pause = threading.Event()
    while not state.has_ended:
        state.observe(measure(state.process_group))
        try:
            client.check_served(timeout_seconds=_ANSWER_SECONDS)
        except NoAnswerError:
            pause.wait(_LOOK_SECONDS)
        else:
            state.engine_answers()
            return


def _is_healthy(client: EngineClient) -> bool:
    try:
        client.check_health(timeout_seconds=1.0)
    except NoAnswerError:
        return False
    return True


def _report_end(ending: Ending, *, state: LaunchState, words: LastWords, options: LaunchOptions) -> int:
    progress = state.progress()
    message = ending_message(
        ending,
        last=LastState(
            engine_seconds=state.engine_seconds,
            pinned_bytes=progress["pinned_bytes"],
            planned_pinned_bytes=progress["planned_pinned_bytes"],
            num_oom_kills=num_oom_kills(),
        ),
        words=words.lines(),
    )
    exit_code = ending.exit_code if ending.exit_code >= 0 else 128 - ending.exit_code
    if message:
        _say(message.splitlines()[0])
        write_termination_message(message, file=options.termination_log)
    _say(f"the engine ended with {exit_code}")
    return exit_code


def _refuse(text: str, options: LaunchOptions, *, exit_code: int) -> int:
    _say(text)
    write_termination_message(text, file=options.termination_log)
    return exit_code


def _say(text: str) -> None:
    sys.stderr.write("".join(f"hisparse launch: {line}\n" for line in text.splitlines()))
    sys.stderr.flush()


class _Blocked:
    """WAITED_SIGNALS wait until the block is over."""

    def __enter__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_SIGNALS)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED_SIGNALS)
