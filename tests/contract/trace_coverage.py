"""`python -m tests.contract.trace_coverage`: how often each thing happens in the committed traces."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tests.contract.trace_data import REFERENCE_VERSION, kinds, traces
from tests.contract.traces import Limits, RequestState, Step, Trace, page_set
from tests.contract.workloads import Settings


class Moment(NamedTuple):
    """A step, with the requests as they were before it."""

    step: Step
    before: Mapping[str, RequestState]
    settings: Settings
    limits: Limits

    @property
    def states(self) -> Iterable[RequestState]:
        """Of the requests after the step."""
        return self.step.requests.values()

    def is_loading(self) -> bool:
        """Whether a load from the offload tier begins."""
        return any(job.load for job in self.step.offload_jobs)

    def resumed(self) -> list[str]:
        """Requests that were preempted and run again."""
        return [one.request for one in self.step.admitted if _status(self.before, one.request) == "preempted"]

    def told_again(self) -> list[str]:
        """Requests of which the worker hears of pages that it knew."""
        known = {name: state.synced_pages for name, state in self.before.items()}
        return [name for name, pages in self.step.told.items() if min(page_set(pages)) < known.get(name, 0)]


PHENOMENA: dict[str, Callable[[Moment], object]] = {
    "pages lost": lambda now: now.step.lost,
    "pages lost by several requests": lambda now: len(now.step.lost) > 1,
    "pages adopted after a prefix hit": lambda now: now.step.adopted,
    "worker told of pages again": lambda now: now.told_again(),
    "stale pages of an unscheduled request": lambda now: any(state.stale for state in now.states),
    "request partly on the host": lambda now: any(state.resident and state.host_only for state in now.states),
    "hot request entirely on the GPU": lambda now: any(state.hot and not state.host_only for state in now.states),
    "batch with pages on the host": lambda now: now.settings.mode == "hisparse" and not now.step.all_resident,
    "hot region wanted and not there": lambda now: any(state.hot_required and not state.hot for state in now.states),
    "several hot regions": lambda now: sum(state.hot for state in now.states) > 1,
    "below the watermark": lambda now: now.step.below_watermark,
    "transfers": lambda now: now.step.transfers,
    "as many transfers as are allowed": lambda now: 0 < now.limits.max_transfers_per_step == len(now.step.transfers),
    "restore of an imported tail": lambda now: any(transfer.restore for transfer in now.step.transfers),
    "transfer of a request that is gone": lambda now: (
        now.step.pending_transfers > sum(len(page_set(state.pending)) for state in now.states)
    ),
    "admission deferred by the GPU": lambda now: "gpu" in now.step.deferred.values(),
    "admission deferred by the host": lambda now: "host" in now.step.deferred.values(),
    "preemption with HiSparse": lambda now: now.step.preempted and now.limits.num_groups,
    "preemption without HiSparse": lambda now: now.step.preempted and not now.limits.num_groups,
    "preemption of several": lambda now: len(now.step.preempted) > 1,
    "preemption by priority": lambda now: now.step.preempted and now.settings.policy == "priority",
    "preemption with a step in flight": lambda now: now.step.preempted and now.settings.steps_in_flight > 1,
    "request waits for a transfer": lambda now: now.step.stalled,
    "request resumed": lambda now: now.resumed(),
    "request resumed with a prefix hit": lambda now: any(
        one.local_tokens for one in now.step.admitted if one.request in now.resumed()
    ),
    "local prefix hit": lambda now: any(admission.local_tokens for admission in now.step.admitted),
    "import begins": lambda now: now.settings.imports and any(one.imported_tokens for one in now.step.admitted),
    "import behind a local prefix hit": lambda now: any(one.local_tokens and one.imported_tokens for one in now.step.admitted),
    "import of a request that is gone": lambda now: any(state.status == "finished" for state in now.states),
    "speculative tokens": lambda now: now.step.drafts,
    "speculative tokens accepted": lambda now: any(number > 1 for number in now.step.sampled.values()),
    "speculative tokens with a step in flight": lambda now: now.step.drafts and now.settings.steps_in_flight > 1,
    "speculative tokens refused": lambda now: any(
        number <= now.settings.num_speculative_tokens for number in now.step.sampled.values()
    ),
    "running request without room in the step": lambda now: 0 < len(now.step.scheduled) < len(now.step.running) - 1,
    "store into the offload tier": lambda now: any(not job.load for job in now.step.offload_jobs),
    "load from the offload tier": lambda now: now.is_loading(),
    "load of indexer pages beside HiSparse": lambda now: now.is_loading() and now.limits.num_groups,
    "store flushed": lambda now: now.step.flushed_jobs,
    "offload tier full": lambda now: now.step.offloaded_pages == now.settings.offload_pages,
}


def coverage(all_traces: Iterable[Trace]) -> tuple[Counter[str], dict[str, set[str]], int]:
    """Steps and names of workloads for each phenomenon, and the number of all steps."""
    steps: Counter[str] = Counter()
    workloads: dict[str, set[str]] = defaultdict(set)
    num_steps = 0
    for trace in all_traces:
        before: Mapping[str, RequestState] = {}
        for step in trace.steps:
            num_steps += 1
            moment = Moment(step, before, trace.workload.settings, trace.limits)
            happening = [name for name, happens in PHENOMENA.items() if happens(moment)]
            steps.update(happening)
            for name in happening:
                workloads[name].add(trace.workload.name)
            before = step.requests
    return steps, workloads, num_steps


def _status(requests: Mapping[str, RequestState], name: str) -> str:
    return requests[name].status if name in requests else "absent"


def main() -> int:
    steps, workloads, num_steps = coverage(trace for kind in kinds() for trace in traces(kind, version=REFERENCE_VERSION))
    print(f"{'':42}  steps  workloads")
    for name in PHENOMENA:
        print(f"{name:42}{steps[name]:7}{len(workloads[name]):11}")
    print(f"{'all':42}{num_steps:7}{sum(1 for kind in kinds() for _ in traces(kind, version=REFERENCE_VERSION)):11}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
