"""Frames with one page of several requests: whoever gives it up last makes it free, and each reader is told of its loss once."""

import numpy as np

from hisparse_runtime.policy import PageState, check_integrity
from tests.unit.policy.small_memory import PAGE, SmallMemory

PROMPT = [*range(6 * PAGE), 99]


def side_by_side() -> SmallMemory:
    """Requests "a" and "b" in one batch on a prefix that the device has. Pages 0 to 4 are given up; page 5 is in the tail."""
    memory = SmallMemory()
    memory.admit("first", PROMPT)
    memory.step_and_acknowledge("first")
    memory.release("first")
    memory.admit("a", PROMPT)
    memory.admit("b", PROMPT)
    memory.step_and_acknowledge("a", "b")
    for name in ("a", "b"):
        assert memory.table(name).states[:6].tolist() == [PageState.UNPINNED] * 5 + [PageState.CLEAN_PINNED]
    assert memory.table("a").frames[:6].tolist() == memory.table("b").frames[:6].tolist()
    return memory


def test_page_that_two_requests_give_up_in_one_step_is_free() -> None:
    memory = side_by_side()
    frame = memory.table("a").frames[5]
    assert memory.pools.frames.holders[frame] == 2
    for name in ("a", "b"):
        memory.grow(name, [7] * PAGE)
    memory.step("a", "b")
    assert memory.pools.frames.holders[frame] == 0
    assert not memory.pools.device.holders[memory.pools.frames.blocks[frame]].any()
    check_integrity(memory.memory)


def test_request_that_ends_does_not_read_any_more_and_the_others_do() -> None:
    for gone, other in (("a", "b"), ("b", "a")):
        memory = side_by_side()
        memory.release(gone)
        readers = memory.pools.frames.readers()
        table = memory.table(other)
        assert {frame: {(table.number, page)} for page, frame in enumerate(table.frames[:5].tolist())} == readers
        check_integrity(memory.memory)


def test_reader_is_told_of_a_loss_once() -> None:
    memory = side_by_side()
    memory.pools.device.take(memory.pools.device.num_free)
    assert memory.pools.frames.readers() == {}
    assert memory.memory.totals.lost_pages == 2 * 5


def test_copy_in_a_newer_frame_is_found_when_the_older_one_is_taken() -> None:
    memory = SmallMemory()
    memory.admit("a", PROMPT)
    memory.admit("b", PROMPT)  # computes the same pages beside it
    memory.step_and_acknowledge("a", "b")
    newer = set(memory.table("b").frames[:6].tolist())
    older = memory.pools.frames.blocks[memory.table("a").frames[:6]].ravel()
    memory.release("a")
    free = memory.pools.device.num_free
    assert np.isin(memory.pools.device.take(free), older).sum() == 2 * 6
    assert {frame for _, frame in memory.pools.frames.copies.items()} == newer
