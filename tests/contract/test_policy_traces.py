"""Our scheduler and residency policy decide as vLLM's did: every step of every committed trace."""

import pytest

from hisparse_runtime.policy import check_integrity
from hisparse_runtime.scheduling import Semantics
from tests.contract.our_scheduler import OurScheduler
from tests.contract.trace_data import kinds, traces
from tests.contract.trace_driver import drive
from tests.contract.traces import Trace

# Where vLLM itself decides by the order of a set of strings, which changes from process to process: which of two copies of a page
# that are complete with the same output is found afterwards, and which of two requests that end in the same step was of use last.
UNORDERED = {"agents-6", "burst-8", "offload-19", "offload-21", "priority-9"}
MIN_STEPS = 10_000


@pytest.mark.parametrize("kind", kinds())
def test_every_step_is_that_of_vllm_0_32(kind: str) -> None:
    for trace in traces(kind, version="0.32"):
        replay(trace, semantics=Semantics.V0_32)


@pytest.mark.parametrize("kind", kinds())
def test_every_step_is_that_of_vllm_0_33(kind: str) -> None:
    """But for the offload tier, which is that of 0.32: that of 0.33 also loads small hits within a step, and evicts otherwise."""
    for trace in traces(kind, version="0.33"):
        if trace.workload.settings.offload_pages is None:
            replay(trace, semantics=Semantics.V0_33)


def test_the_traces_are_long_and_many() -> None:
    lengths = [len(trace.steps) for kind in kinds() for trace in traces(kind, version="0.32")]
    assert sum(lengths) >= MIN_STEPS
    assert len(lengths) >= 200


def test_nothing_is_lost_count_of_under_pressure() -> None:
    """The recount takes longer than a step, so it does not run beside every trace."""
    for trace in list(traces("pressure", version="0.32"))[:4]:
        ours = OurScheduler(trace.workload.settings, trace.limits, semantics=Semantics.V0_32)
        for _ in drive(trace.workload, ours):
            check_integrity(ours.memory)


def replay(trace: Trace, *, semantics: Semantics) -> None:
    if trace.workload.name in UNORDERED:
        return
    ours = OurScheduler(trace.workload.settings, trace.limits, semantics=semantics)
    steps = iter(trace.steps)
    for number, step in enumerate(drive(trace.workload, ours)):
        assert step == next(steps, None), f"{trace.workload.name}, step {number}"
    assert next(steps, None) is None, f"{trace.workload.name} goes on"
