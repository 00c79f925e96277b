"""How residency work grows with the length of contexts and the number of groups: ours alone, all sizes side by side.

Rows of the table are measured minutes apart, and a machine's speed varies by more than what is asked here. So schedulers of all
four sizes, with HiSparse and without it, run in turn, round by round. They are made anew several times, since where their memory
happens to lie counts, too.
"""

import gc
import statistics
from dataclasses import dataclass
from itertools import product

from benchmarks.policy_cases import MODELS, Case, Phase
from benchmarks.policy_ours import Session
from tests.contract.workloads import PAGE_TOKENS

FLAT_GOAL = 1.3
NUM_REQUESTS = 64
_PAGES = (1250, 16384)
_BUILDS = 3
_ROUNDS: dict[Phase, int] = {"decode": 40, "prefill": 12}  # in decode the work is a small part of a step: it takes more of them
_STEPS = PAGE_TOKENS  # all requests begin a page in one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatSize:
    """Residency work in milliseconds a step: the median over rounds, and their quartiles."""

    num_pages: int
    num_groups: int
    residency_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatness:
    """How many times the work of a step grows: `by_pages` from the shortest to the longest contexts, `by_groups` from the fewest
    to the most groups; each where it grows most."""

    phase: Phase
    sizes: list[FlatSize]
    by_pages: float
    by_groups: float


def measure_flatness(phase: Phase) -> Flatness:
    rounds: dict[tuple[int, int], list[float]] = {size: [] for size in product(_PAGES, MODELS)}
    for _ in range(_BUILDS):
        pairs = {size: [_open(phase, *size, with_hisparse=with_hisparse) for with_hisparse in (True, False)] for size in rounds}
        for _ in range(_ROUNDS[phase]):
            for size, pair in pairs.items():
                with_s, without_s = (statistics.fmean(session.run(_STEPS)) for session in pair)
                rounds[size].append(1e3 * (with_s - without_s))
        pairs.clear()
        gc.unfreeze()  # sessions freeze what they make
        gc.collect()
    sizes = [_size(*size, residency_ms) for size, residency_ms in rounds.items()]
    work = {(size.num_pages, size.num_groups): size.residency_ms for size in sizes}
    (short, long), (few, many) = _PAGES, sorted(MODELS)
    return Flatness(
        phase=phase,
        sizes=sizes,
        by_pages=max(work[long, groups] / work[short, groups] for groups in MODELS),
        by_groups=max(work[pages, many] / work[pages, few] for pages in _PAGES),
    )


def _open(phase: Phase, num_pages: int, num_groups: int, *, with_hisparse: bool) -> Session:
    case = Case(phase=phase, num_requests=NUM_REQUESTS, num_pages=num_pages, num_groups=num_groups, with_hisparse=with_hisparse)
    session = Session(case)
    session.run(_STEPS)
    return session


def _size(num_pages: int, num_groups: int, residency_ms: list[float]) -> FlatSize:
    low, middle, high = statistics.quantiles(residency_ms, n=4)
    return FlatSize(num_pages=num_pages, num_groups=num_groups, residency_ms=middle, low_ms=low, high_ms=high)
