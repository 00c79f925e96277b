"""Our scheduler under the load of `policy_cases`, timed step by step as `policy_upstream` times vLLM's."""

import gc
import time
from collections.abc import Collection

from benchmarks.policy_cases import GENERATED_TOKENS, HOT_ROWS, MAX_NUM_BATCHED_TOKENS, Case
from hisparse_runtime.policy import HiSparseMemory, OrdinaryMemory, PolicySettings
from hisparse_runtime.scheduling import Request, Scheduler, SchedulerSettings, StepResult
from tests.contract.workloads import PAGE_TOKENS

TOKEN = 7


class Session:
    """One scheduler under load."""

    def __init__(self, case: Case) -> None:
        self._case = case
        settings = case.settings
        policy = PolicySettings(
            num_groups=case.num_groups,
            page_tokens=PAGE_TOKENS,
            num_device_blocks=settings.gpu_blocks,
            num_host_blocks=settings.host_blocks or 1,
            hot_blocks_per_group=HOT_ROWS // PAGE_TOKENS,
            window_pages=min(MAX_NUM_BATCHED_TOKENS, settings.max_model_len) // PAGE_TOKENS,
            max_model_len=settings.max_model_len,
        )
        self.memory = HiSparseMemory(policy) if case.with_hisparse else OrdinaryMemory(policy)
        self.scheduler = Scheduler(
            SchedulerSettings(
                max_num_batched_tokens=settings.max_num_batched_tokens,
                max_num_seqs=settings.max_num_seqs,
                max_model_len=settings.max_model_len,
                page_tokens=PAGE_TOKENS,
            ),
            self.memory,
        )
        self._num_prefills = 0
        names = [f"imported-{number}" for number in range(case.num_imported)]
        for number, name in enumerate(names):
            self._add(name, number, is_import=True)
        self._step(imported=())
        self._step(imported=names)
        while not all(self.scheduler.requests[name].num_output > 1 for name in names):
            self._step(imported=())
        gc.collect()
        gc.freeze()

    def run(self, num_steps: int) -> list[float]:
        """Seconds of the processor in each step. In phase "prefill" each has a chunk of a prompt."""
        steps = []
        for _ in range(num_steps):
            if self._case.phase == "prefill":
                self._feed()
            steps.append(self._step(imported=()))
        return steps

    def _feed(self) -> None:
        current = self.scheduler.requests.get(f"prefilled-{self._num_prefills}")
        if current is not None and current.num_output == 0:
            return
        if current is not None:
            self.scheduler.abort(current.request_id)
        self._num_prefills += 1
        self._add(f"prefilled-{self._num_prefills}", self._case.num_requests + self._num_prefills, is_import=False)

    def _add(self, name: str, number: int, *, is_import: bool) -> None:
        prompt = self._case.prompt(number)
        self.scheduler.add(
            Request(
                request_id=name,
                tokens=prompt,
                num_prompt_tokens=len(prompt),
                max_tokens=GENERATED_TOKENS,
                is_import=is_import,
            )
        )

    def _step(self, *, imported: Collection[str]) -> float:
        begin = time.thread_time()
        plan = self.scheduler.schedule()
        seconds = time.thread_time() - begin
        tokens = {each.request_id: (TOKEN,) for each in plan.requests if each.wants_token}
        completed = [transfer.transfer_id for transfer in plan.changes.transfers]
        result = StepResult(tokens=tokens, completed=completed, imported=imported)
        begin = time.thread_time()
        self.scheduler.update(plan, result)
        return seconds + time.thread_time() - begin
