import numpy as np
import pytest
from numpy.typing import NDArray

from hisparse_runtime.policy import OffloadTier, PageNames

PAGE = 4


def blocks(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, dtype=np.int32)


class Client:
    """A request of whole pages, and its dealings with the tier."""

    def __init__(self, tier: OffloadTier, name: str, tokens: list[int]) -> None:
        self.tier, self.name, self.tokens = tier, name, tokens
        self.names = PageNames(tokens, page_tokens=PAGE)

    def find(self, *, first_page: int = 0, max_pages: int | None = None) -> int | None:
        return self.tier.find(
            self.name,
            self.names,
            num_prompt_tokens=len(self.tokens),
            first_page=first_page,
            num_tokens=len(self.tokens),
            max_pages=max_pages,
        )

    def store(self, *device: int) -> list[int]:
        """Jobs of a step in which all tokens are computed in these blocks."""
        jobs, _ = self.tier.plan_jobs([(self.name, blocks(*device), len(self.tokens))], allocated=[blocks(*device)])
        return [job.job_id for job in jobs]

    def finish(self, *device: int) -> None:
        self.tier.note_finished(self.name, blocks(*device), num_tokens=len(self.tokens))
        self.tier.plan_jobs([], allocated=[])


@pytest.fixture
def tier() -> OffloadTier:
    return OffloadTier(num_slots=4, page_tokens=PAGE, is_newest=True)


def test_page_can_be_loaded_once_its_store_is_acknowledged(tier: OffloadTier) -> None:
    first, second = Client(tier, "a", list(range(8))), Client(tier, "b", [*range(8), 9])
    assert first.find() == 0
    jobs = first.store(5, 6)
    assert second.find() is None  # on its way
    tier.acknowledge(jobs)
    assert second.find() == 2
    assert second.find(first_page=1) == 1
    assert second.find(max_pages=1) == 1


def test_load_names_the_slots_that_were_stored_and_its_request(tier: OffloadTier) -> None:
    first, second = Client(tier, "a", list(range(8))), Client(tier, "b", list(range(8)))
    first.find()
    (stored,), _ = tier.plan_jobs([("a", blocks(5, 6), 8)], allocated=[])
    tier.acknowledge([stored.job_id])
    assert second.find() == 2
    tier.reserve("b", first_page=0, num_pages=2)
    tier.load("b", blocks(8, 9))
    (loaded,), flushed = tier.plan_jobs([], allocated=[blocks(8, 9)])
    assert (loaded.is_load, loaded.slots.tolist(), loaded.device_blocks.tolist()) == (True, stored.slots.tolist(), [8, 9])
    assert flushed == []
    assert second.find() is None
    assert tier.acknowledge([loaded.job_id]) == ["b"]


def test_page_is_stored_once(tier: OffloadTier) -> None:
    first, second = Client(tier, "a", list(range(8))), Client(tier, "b", list(range(12)))
    first.find()
    tier.acknowledge(first.store(5, 6))
    second.find()
    (job,), _ = tier.plan_jobs([("b", blocks(7, 8, 9), 12)], allocated=[])
    assert (list(job.pages), job.device_blocks.tolist()) == ([2], [9])
    assert tier.num_used == 3


def test_answers_are_not_stored(tier: OffloadTier) -> None:
    request = Client(tier, "a", list(range(4)))
    request.find()
    request.tokens += range(4, 12)
    jobs, _ = tier.plan_jobs([("a", blocks(5, 6, 7), 12)], allocated=[])
    assert [list(job.pages) for job in jobs] == [[0]]


def test_what_was_used_longest_ago_makes_room_from_the_tail(tier: OffloadTier) -> None:
    old, recent, new = (
        Client(tier, "old", list(range(8))),
        Client(tier, "recent", list(range(50, 58))),
        Client(tier, "new", [7] * 4),
    )
    for request in (old, recent):
        request.find()
        tier.acknowledge(request.store(5, 6))
        request.finish(5, 6)
    new.find()
    tier.acknowledge(new.store(7))
    assert Client(tier, "again", list(range(8))).find() == 1
    assert Client(tier, "again too", list(range(50, 58))).find() == 2


@pytest.mark.parametrize(("is_newest", "pages_left"), [(True, 3), (False, 0)])
def test_long_prompt_at_work_makes_room_from_its_tail(*, is_newest: bool, pages_left: int) -> None:
    tier = OffloadTier(num_slots=4, page_tokens=PAGE, is_newest=is_newest)
    long, new = Client(tier, "long", list(range(16))), Client(tier, "new", [7] * 4)
    long.find()
    tier.acknowledge(long.store(1, 2, 3, 4))
    new.find()
    tier.acknowledge(new.store(5))
    assert Client(tier, "again", list(range(16))).find() == pages_left


def test_pages_of_a_late_load_make_no_room(tier: OffloadTier) -> None:
    first, late = Client(tier, "a", list(range(16))), Client(tier, "late", list(range(16)))
    first.find()
    tier.acknowledge(first.store(1, 2, 3, 4))
    assert late.find() == 4
    tier.reserve("late", first_page=0, num_pages=4)
    new = Client(tier, "new", [7] * 4)
    new.find()
    assert new.store(5) == []
    tier.load("late", blocks(6, 7, 8, 9))
    (loaded,), _ = tier.plan_jobs([], allocated=[])
    assert list(loaded.pages) == [0, 1, 2, 3]


@pytest.mark.parametrize(("is_newest", "stored"), [(True, [3]), (False, [])])
def test_request_that_begins_again_stores_what_was_lost_meanwhile(*, is_newest: bool, stored: list[int]) -> None:
    tier = OffloadTier(num_slots=4, page_tokens=PAGE, is_newest=is_newest)
    first, new = Client(tier, "a", list(range(16))), Client(tier, "new", [7] * 4)
    first.find()
    tier.acknowledge(first.store(1, 2, 3, 4))
    tier.note_preempted("a")
    new.find()
    tier.acknowledge(new.store(5))
    new.finish(5)
    first.find()
    jobs, _ = tier.plan_jobs([("a", blocks(1, 2, 3, 4), 16)], allocated=[])
    assert [page for job in jobs for page in job.pages] == stored


def test_nothing_is_stored_where_nothing_can_make_room_and_tried_again_later(tier: OffloadTier) -> None:
    first, second = Client(tier, "a", list(range(16))), Client(tier, "b", [7] * 4)
    first.find()
    second.find()
    jobs = first.store(1, 2, 3, 4)
    assert second.store(5) == []
    tier.acknowledge(jobs)
    assert len(second.store(5)) == 1


def test_store_ends_before_its_blocks_are_written_by_others(tier: OffloadTier) -> None:
    first = Client(tier, "a", list(range(8)))
    first.find()
    (job,) = first.store(5, 6)
    tier.note_finished("a", blocks(5, 6), num_tokens=8)
    assert tier.plan_jobs([], allocated=[blocks(7)]) == ([], [])
    assert tier.plan_jobs([], allocated=[blocks(6, 9)])[1] == [job]
    tier.acknowledge([job])
    assert tier.plan_jobs([], allocated=[blocks(6, 9)])[1] == []
    assert not tier.has_jobs


def test_stores_of_a_preempted_request_end_before_the_next_step(tier: OffloadTier) -> None:
    first = Client(tier, "a", list(range(8)))
    first.find()
    jobs = first.store(5, 6)
    tier.note_preempted("a")
    assert tier.plan_jobs([], allocated=[])[1] == jobs
    assert first.find() is None
    tier.acknowledge(jobs)
    assert first.find() == 2


def test_page_that_is_being_loaded_is_asked_for_again_later(tier: OffloadTier) -> None:
    first, second, third = (Client(tier, name, list(range(8))) for name in "abc")
    first.find()
    tier.acknowledge(first.store(1, 2))
    assert second.find() == 2
    tier.reserve("b", first_page=0, num_pages=2)
    tier.load("b", blocks(3, 4))
    (loaded,), _ = tier.plan_jobs([], allocated=[])
    assert third.find() is None
    tier.acknowledge([loaded.job_id])
    assert third.find() == 2


def test_pages_make_room_again_when_their_load_is_given_up_before_it_starts(tier: OffloadTier) -> None:
    first, late, new = (
        Client(tier, "a", list(range(16))),
        Client(tier, "late", list(range(16))),
        Client(tier, "new", [7] * 4),
    )
    first.find()
    tier.acknowledge(first.store(1, 2, 3, 4))
    late.find()
    tier.reserve("late", first_page=0, num_pages=4)
    late.finish()
    new.find()
    assert len(new.store(5)) == 1


def test_page_keeps_the_rank_of_the_latest_request_that_uses_it() -> None:
    tier = OffloadTier(num_slots=3, page_tokens=PAGE, is_newest=True)
    early, middle, late, new = (
        Client(tier, "early", list(range(8))),
        Client(tier, "middle", [5] * 4),
        Client(tier, "late", list(range(8))),
        Client(tier, "new", [7] * 4),
    )
    early.find()
    (job,), _ = tier.plan_jobs([("early", blocks(1), PAGE)], allocated=[])
    tier.acknowledge([job.job_id])
    middle.find()
    tier.acknowledge(middle.store(2))
    late.find()
    tier.acknowledge(late.store(3, 4))
    assert early.store(1, 5) == []  # its second page is there by now, and stays behind what `middle` has
    new.find()
    new.store(6)
    assert Client(tier, "again", list(range(8))).find() == 2
    assert Client(tier, "middle again", [5] * 4).find() == 0


def test_page_that_somebody_else_is_storing_is_not_used_by_offering_it() -> None:
    tier = OffloadTier(num_slots=2, page_tokens=PAGE, is_newest=True)
    first, beside, other, new = (
        Client(tier, "first", list(range(4))),
        Client(tier, "beside", list(range(4))),
        Client(tier, "other", [5] * 4),
        Client(tier, "new", [7] * 4),
    )
    first.find()
    beside.find()
    jobs = first.store(1)
    assert beside.store(2) == []
    tier.acknowledge(jobs)
    first.finish(1)
    other.find()
    tier.acknowledge(other.store(3))
    other.finish(3)
    beside.finish(2)
    new.find()
    tier.acknowledge(new.store(4))
    assert Client(tier, "other again", [5] * 4).find() == 1
    assert Client(tier, "first again", list(range(4))).find() == 0


def test_only_the_first_use_of_a_page_ranks_it() -> None:
    tier = OffloadTier(num_slots=5, page_tokens=PAGE, is_newest=True)
    first, second, third, filling, new = (
        Client(tier, "first", list(range(8))),
        Client(tier, "second", [5] * 8),
        Client(tier, "third", list(range(8))),
        Client(tier, "filling", [6] * 16),
        Client(tier, "new", [7] * 4),
    )
    for early in (first, second):
        early.find()
        (job,), _ = tier.plan_jobs([(early.name, blocks(1), PAGE)], allocated=[])
        tier.acknowledge([job.job_id])
    third.find()
    tier.acknowledge(third.store(2, 3))
    filling.find()
    tier.acknowledge(filling.store(4, 5, 6, 7))  # in place of the page of `second` and of the last one of `third`
    jobs, _ = tier.plan_jobs([("first", blocks(1, 8), 8), ("second", blocks(1, 9), 8)], allocated=[])
    tier.acknowledge([job.job_id for job in jobs])
    assert third.find(first_page=1) == 1  # which `first` has brought back, and ranks
    tier.reserve("third", first_page=1, num_pages=1)
    tier.load("third", blocks(2, 3))
    jobs, _ = tier.plan_jobs([], allocated=[])
    tier.acknowledge([job.job_id for job in jobs])
    new.find()
    tier.acknowledge(new.store(10))
    assert Client(tier, "third again", list(range(8))).find(first_page=1) == 0
    assert Client(tier, "second again", [5] * 8).find(first_page=1) == 1
