"""What is read without counting. The recount itself is part of check_integrity, which the state machine runs after every step."""

from hisparse_runtime.policy import PageState, ResidencyClass
from tests.unit.policy.small_memory import PAGE, SmallMemory


def test_request_goes_from_full_to_mixed_to_none() -> None:
    memory = SmallMemory()
    counts = memory.memory.totals
    memory.admit("a", [*range(6 * PAGE), 99])
    memory.make_hot("a")
    assert counts.requests == {ResidencyClass.FULL: 1, ResidencyClass.MIXED: 0, ResidencyClass.NONE: 0}
    assert counts.hot_regions == 1
    memory.pools.device.take(memory.pools.device.num_free - 4)
    assert counts.requests[ResidencyClass.MIXED] == 1
    memory.pools.device.take(memory.pools.device.num_free)
    assert counts.requests[ResidencyClass.MIXED] == 1  # the tail stays
    assert counts.pages[PageState.HOST_ONLY] == counts.lost_pages == 5


def test_request_on_a_cached_prefix_begins_with_nothing() -> None:
    memory = SmallMemory()
    prompt = [*range(6 * PAGE), 99]
    memory.admit("a", prompt)
    memory.step_and_acknowledge("a")
    memory.release("a")
    memory.admit("b", prompt)
    assert memory.memory.totals.requests[ResidencyClass.NONE] == 1
    memory.step("b")
    assert memory.memory.totals.requests[ResidencyClass.FULL] == 1
    assert memory.memory.totals.adopted_pages == 6


def test_nothing_is_counted_of_requests_that_have_left() -> None:
    memory = SmallMemory()
    memory.admit("a", range(6 * PAGE))
    memory.make_hot("a")
    memory.release("a")
    counts = memory.memory.totals
    assert (sum(counts.pages), sum(counts.requests.values()), counts.hot_regions) == (0, 0, 0)
