"""`python -m benchmarks.policy_upstream`, inside vLLM's environment: times vLLM's scheduler, step by step, on request.

A JSON object a line on standard input, and one back for each. `{"open": CASE}` (fields of `policy_cases.Case`) makes a scheduler
with its load: `{"session": 0, "seconds": 12.3, "resident_bytes": ...}`. `{"session": 0, "steps": 50}` runs steps:
`{"schedule_s": [...], "update_s": [...], "scheduled_tokens": [...]}`, seconds of the processor in each `schedule` and
`update_from_output`.
`{"close": 0}` gives its memory back. Sessions stand beside each other, so that rounds can alternate.
"""

import gc
import json
import os
import resource
import sys
import time
from typing import Any

from benchmarks.policy_cases import GENERATED_TOKENS, Case
from tests.contract.upstream_side.scheduling_answer import start

TOKEN = 7
MAX_OPENING_STEPS = 50


def main() -> int:
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"  # 16,384 pages are all that the models are made for
    output = start()
    sessions: dict[int, Session] = {}
    num_opened = 0
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any]
        if "open" in command:
            began = time.perf_counter()
            sessions[num_opened] = Session(Case(**command["open"]))
            answer = {"session": num_opened, "seconds": time.perf_counter() - began, "resident_bytes": _resident_bytes()}
            num_opened += 1
        elif "close" in command:
            del sessions[command["close"]]
            gc.unfreeze()
            gc.collect()
            answer = {"closed": command["close"]}
        else:
            answer = sessions[command["session"]].run(command["steps"])
        gc.freeze()  # as the engine core does once it is built
        output.write(json.dumps(answer) + "\n")
        output.flush()
    return 0


class Session:
    """One scheduler under load. `hisparse_module`: as of `build_engine`."""

    def __init__(self, case: Case, *, hisparse_module: str | None = None, log_stats: bool = False) -> None:
        from tests.contract.upstream_side.scheduling_engine import build_engine  # noqa: PLC0415  after vLLM's platform
        from tests.contract.upstream_side.scheduling_worker import Worker  # noqa: PLC0415  as above

        self._case = case
        self._engine = build_engine(case.settings, hisparse_module=hisparse_module, log_stats=log_stats)
        self.scheduler = self._scheduler = self._engine.scheduler
        self._worker = Worker(self._scheduler)
        self._num_prefills = 0
        names = [f"imported-{number}" for number in range(case.num_imported)]
        for number, name in enumerate(names):
            self._engine.add(name, case.prompt(number), max_tokens=GENERATED_TOKENS, is_imported=True, arrival=number)
        self._step(arrived=())
        self._step(arrived=names)
        for _ in range(MAX_OPENING_STEPS):
            if all(self._scheduler.requests[name].num_output_tokens > 1 for name in names):
                return
            self._step(arrived=())
        raise RuntimeError(f"{case}: not all requests run after {MAX_OPENING_STEPS} steps")

    def run(self, num_steps: int) -> dict[str, Any]:
        """That many steps, each with a chunk of a prompt in phase "prefill"."""
        steps = []
        for _ in range(num_steps):
            if self._case.phase == "prefill":
                self._feed()
            steps.append(self._step(arrived=()))
        schedule_s, update_s, scheduled_tokens = zip(*steps, strict=True)
        return {"schedule_s": schedule_s, "update_s": update_s, "scheduled_tokens": scheduled_tokens}

    def _feed(self) -> None:
        """Another prompt once the one before it is through."""
        current = self._scheduler.requests.get(f"prefilled-{self._num_prefills}")
        if current is not None and current.num_output_tokens == 0:
            return
        if current is not None:
            from vllm.v1.request import RequestStatus  # type: ignore[import-not-found]  # noqa: PLC0415  vLLM's own environment

            self._scheduler.finish_requests(current.request_id, RequestStatus.FINISHED_ABORTED)
        self._num_prefills += 1
        number = self._case.num_requests + self._num_prefills
        self._engine.add(
            f"prefilled-{self._num_prefills}", self._case.prompt(number), max_tokens=GENERATED_TOKENS, arrival=number
        )

    def _step(self, *, arrived: Any) -> tuple[float, float, int]:
        begin = time.thread_time()
        output = self._scheduler.schedule()
        scheduled = time.thread_time()
        requests = self._scheduler.requests
        tokens = {name: () if requests[name].is_prefill_chunk else (TOKEN,) for name in output.num_scheduled_tokens}
        answer = self._worker.answer(output, tokens, completed=self._worker.sent(output), arrived=arrived)
        answered = time.thread_time()
        self._scheduler.update_from_output(output, answer)
        return scheduled - begin, time.thread_time() - answered, output.total_num_scheduled_tokens


def _resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
