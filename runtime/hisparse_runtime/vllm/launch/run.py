"""The main line: preflight, the engine, and an exit code that tells how it went."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hisparse_runtime.vllm.launch.bytecode import with_bytecode_cache
from hisparse_runtime.vllm.launch.command import CommandError, EngineCommand, engine_command
from hisparse_runtime.vllm.launch.engine_client import EngineClient, NoAnswerError
from hisparse_runtime.vllm.launch.engine_process import EngineProcess, EngineStartError
from hisparse_runtime.vllm.launch.last_words import LastWords
from hisparse_runtime.vllm.launch.measure import measure, num_oom_kills
from hisparse_runtime.vllm.launch.state import LaunchState
from hisparse_runtime.vllm.launch.status_answers import Residency, StatusAnswers
from hisparse_runtime.vllm.launch.status_server import StatusServerError, serve_status
from hisparse_runtime.vllm.launch.supervise import WAITED_SIGNALS, Ending, supervise
from hisparse_runtime.vllm.launch.termination import TERMINATION_LOG, LastState, ending_message, write_termination_message
from hisparse_runtime.vllm.pod_plan import STATUS_PORT, PodPlan, PodPlanError, read_pod_plan
from hisparse_runtime.vllm.preflight import EXIT_REFUSED, Report

EXIT_MISUSE = 2
EXIT_NO_PROGRAM = 127
# Reason and exit code, where there is no engine for them.
_FAILURES: dict[type[Exception], tuple[str, int]] = {
    PodPlanError: ("InvalidPlan", EXIT_REFUSED),
    CommandError: ("InvalidCommand", EXIT_MISUSE),
    StatusServerError: ("StatusPortTaken", EXIT_MISUSE),
    EngineStartError: ("EngineNotFound", EXIT_NO_PROGRAM),
}
_LOOK_SECONDS = 0.5
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
        plan = read_pod_plan(options.plan_file)
        command = engine_command(options.words)
        client = EngineClient(
            host=command.host,
            port=command.port,
            served_name=command.served_name,
            api_key=options.environment.get("VLLM_API_KEY"),
        )
        state = LaunchState(plan)
        answers = StatusAnswers(state=state, client=client, residency=parts.residency(plan, command))
        with _Blocked():
            # The server's threads inherit that: signals are for this one.
            serve_status(answers.answer, port=options.status_port)
        report = parts.preflight(plan, command, options.words)
        for line in report.lines():
            _say(line)
        if not report.passed:
            write_termination_message(report.termination_message(), file=options.termination_log)
            return EXIT_REFUSED
        signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_SIGNALS)
        words = LastWords(options.environment)
        engine = EngineProcess(command.arguments, with_bytecode_cache(options.environment), words=words)
    except tuple(_FAILURES) as error:
        reason, exit_code = _FAILURES[type(error)]
        _tell(f"{reason}: {error}", options)
        return exit_code
    state.engine_started(engine.process_group)
    threading.Thread(target=_watch_start, args=(state, client), name="start", daemon=True).start()
    ending = supervise(engine, plan=plan, state=state, is_healthy=lambda: _is_healthy(client), say=_say)
    words.wait(timeout_seconds=_LAST_OUTPUT_SECONDS)
    if message := _message(ending, state, words):
        _tell(message, options)
    exit_code = ending.exit_code if ending.exit_code >= 0 else 128 - ending.exit_code
    _say(f"the engine ended with {exit_code}")
    return exit_code


def _watch_start(state: LaunchState, client: EngineClient) -> None:
    """Until the engine answers for its model: from then on, its probes ask it themselves."""
    while not state.has_ended:
        state.observe(measure(state.process_group))
        try:
            client.check_served(timeout_seconds=_ANSWER_SECONDS)
        except NoAnswerError:
            time.sleep(_LOOK_SECONDS)
        else:
            state.engine_answers()
            return


def _is_healthy(client: EngineClient) -> bool:
    try:
        client.check_health(timeout_seconds=1.0)
    except NoAnswerError:
        return False
    return True


def _message(ending: Ending, state: LaunchState, words: LastWords) -> str:
    progress = state.progress()
    last = LastState(
        engine_seconds=state.engine_seconds,
        pinned_bytes=progress["pinned_bytes"],
        planned_pinned_bytes=progress["planned_pinned_bytes"],
        num_oom_kills=num_oom_kills(),
    )
    return ending_message(ending, last=last, words=words.lines())


def _tell(message: str, options: LaunchOptions) -> None:
    """The engine's own words, after the first line, are in the log already."""
    _say(message.partition("\n")[0])
    write_termination_message(message, file=options.termination_log)


def _say(text: str) -> None:
    sys.stderr.write("".join(f"hisparse launch: {line}\n" for line in text.splitlines()))
    sys.stderr.flush()


class _Blocked:
    """WAITED_SIGNALS wait until the block is over."""

    def __enter__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_SIGNALS)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WAITED_SIGNALS)
