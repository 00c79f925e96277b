"""The committed traces of vLLM's own scheduler: per kind of workload those of 0.32, and those of 0.33 that differ from them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.contract.traces import Trace, load_traces, save_traces

FOLDER = Path(__file__).parent / "data"
REFERENCE_VERSION, DEVIATING_VERSION = "0.32", "0.33"
# Of workloads at which vLLM itself fails. 0.33 puts a load off until the steps in flight are processed, and by then the offload
# tier may have dropped what was to be loaded (an assertion in CPUOffloadingManager.prepare_load).
FAILURES = {REFERENCE_VERSION: frozenset[str](), DEVIATING_VERSION: frozenset({"offload-7"})}


def kinds() -> list[str]:
    """That there are traces of."""
    return sorted(path.name.removeprefix("traces-").partition(".")[0] for path in FOLDER.glob("traces-*.jsonl.gz"))


def traces(kind: str, *, version: str) -> Iterator[Trace]:
    """Of vLLM "0.32" or "0.33". Where 0.33 fails, what 0.32 does."""
    deviations: dict[str, Trace] = {}
    if version == DEVIATING_VERSION and _deviations(kind).exists():
        deviations = {trace.workload.name: trace for trace in load_traces(_deviations(kind))}
    for trace in load_traces(_reference(kind)):
        yield deviations.get(trace.workload.name, trace)


def save_reference(kind: str, reference: Sequence[Trace]) -> None:
    """All traces of a kind, of 0.32."""
    save_traces(_reference(kind), reference)


def save_deviations(kind: str, deviations: Sequence[Trace]) -> None:
    """Those of 0.33 that differ; no file when none does."""
    _deviations(kind).unlink(missing_ok=True)
    if deviations:
        save_traces(_deviations(kind), deviations)


def _reference(kind: str) -> Path:
    return FOLDER / f"traces-{kind}.jsonl.gz"


def _deviations(kind: str) -> Path:
    return FOLDER / f"deviations-{DEVIATING_VERSION}-{kind}.jsonl.gz"
