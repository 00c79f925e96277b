"""Our scheduler and residency policy decide as vLLM's did: every step of every committed trace."""

import pytest

from hisparse_runtime.policy import Semantics, check_integrity
from tests.contract.our_scheduler import OurScheduler
from tests.contract.trace_data import FAILURES, kinds, traces
from tests.contract.trace_driver import drive
from tests.contract.traces import Trace

MIN_STEPS = 10_000


@pytest.mark.parametrize("kind", kinds())
def test_every_step_is_that_of_vllm_0_32(kind: str) -> None:
    for trace in traces(kind, version="0.32"):
        replay(trace, semantics=Semantics.V0_32)


@pytest.mark.parametrize("kind", kinds())
def test_every_step_is_that_of_vllm_0_33(kind: str) -> None:
    for trace in traces(kind, version="0.33"):
        if trace.workload.name not in FAILURES["0.33"]:
            replay(trace, semantics=Semantics.V0_33)


def test_a_load_of_which_vllm_0_33_loses_the_pages_is_done() -> None:
    """A load that is put off finds its pages: ours keeps them from its admission on. vLLM 0.33 does not
    (v1/core/sched/scheduler.py, `_drain_deferred_loads`), so another request's store may take their place meanwhile, at which
    it dies (v1/kv_offload/cpu/manager.py, the assertion in `_prepare_load`)."""
    failing = [trace for trace in traces("offload", version="0.33") if trace.workload.name in FAILURES["0.33"]]
    assert failing
    for trace in failing:
        ours = OurScheduler(trace.workload.settings, trace.limits, semantics=Semantics.V0_33)
        steps = list(drive(trace.workload, ours))
        loaded = {admission.request for step in steps for admission in step.admitted if admission.imported_tokens}
        assert loaded
        assert loaded <= {name for step in steps for name in step.finished}
        check_integrity(ours.memory)


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
    ours = OurScheduler(trace.workload.settings, trace.limits, semantics=semantics)
    steps = iter(trace.steps)
    for number, step in enumerate(drive(trace.workload, ours)):
        assert step == next(steps, None), f"{trace.workload.name}, step {number}"
    assert next(steps, None) is None, f"{trace.workload.name} goes on"
