"""The rules that no decision may break, one test each. What breaks one of them turns its test red."""

import numpy as np

from hisparse_runtime.policy import PageState, Refusal, check_integrity
from tests.unit.policy.small_memory import PAGE, SmallMemory


def states(memory: SmallMemory, request_id: str) -> list[str]:
    return [PageState(state).name for state in memory.table(request_id).states]


def test_i1_pages_leave_the_device_only_when_the_host_has_them_and_their_request_reads_it() -> None:
    memory = SmallMemory()
    assert memory.admit("a", range(6 * PAGE)) is None
    memory.step("a")
    assert states(memory, "a") == ["PENDING"] * 6
    memory.fill("b", leaving=memory.memory.settings.watermark_blocks)
    memory.step("a")
    # Copied, but the request has no hot region and there is no pressure: everything stays held.
    memory.memory.acknowledge(list(memory.memory.transfers.pending))
    memory.step("a")
    assert states(memory, "a") == ["CLEAN_PINNED"] * 6
    assert memory.pools.frames.holders[memory.table("a").frames].all()
    memory.make_hot("a")
    assert states(memory, "a") == ["UNPINNED"] * 4 + ["CLEAN_PINNED"] * 2
    check_integrity(memory.memory)


def test_i1_dirty_and_pending_pages_are_not_given_up_under_pressure() -> None:
    memory = SmallMemory()
    memory.admit("a", range(6 * PAGE + 1))
    memory.make_hot("a")
    memory.grow("a", range(3 * PAGE))
    memory.step("a")  # the new pages are on their way to the host
    assert states(memory, "a") == ["UNPINNED"] * 6 + ["PENDING"] * 3 + ["DIRTY"]
    memory.fill("b", leaving=0)
    assert states(memory, "a")[1:5] == ["HOST_ONLY"] * 4
    assert states(memory, "a")[6:] == ["PENDING"] * 3 + ["DIRTY"]
    check_integrity(memory.memory)


def test_i2_last_two_pages_are_never_given_up() -> None:
    memory = SmallMemory()
    memory.admit("a", range(5 * PAGE))
    memory.make_hot("a")
    assert states(memory, "a")[-2:] == ["CLEAN_PINNED", "CLEAN_PINNED"]
    memory.grow("a", range(1))
    memory.step_and_acknowledge("a")
    assert states(memory, "a") == ["UNPINNED"] * 4 + ["CLEAN_PINNED", "DIRTY"]


def test_i3_nothing_under_a_copy_is_handed_out() -> None:
    memory = SmallMemory()
    memory.admit("a", range(4 * PAGE))
    changes = memory.step("a")
    device = np.concatenate([transfer.device_blocks for transfer in changes.transfers])
    host = np.array([transfer.host_block for transfer in changes.transfers])
    memory.release("a", has_finished=False)
    assert memory.pools.device.holders[device].all()
    assert memory.pools.host.holders[host].all()
    check_integrity(memory.memory)
    memory.memory.acknowledge([transfer.transfer_id for transfer in changes.transfers])
    assert memory.pools.device.num_held == memory.pools.host.num_held == 0


def test_i4_only_the_durable_prefix_of_what_is_computed_can_be_found() -> None:
    memory = SmallMemory()
    prompt = [*range(4 * PAGE), 99]
    memory.admit("a", prompt)
    first, second, third, fourth = (transfer.transfer_id for transfer in memory.step("a").transfers)

    def found() -> int:
        return memory.memory.find_hit(memory.names["a"], num_tokens=len(prompt)).tokens

    memory.memory.acknowledge([second, fourth])
    assert found() == 0
    memory.memory.acknowledge([first])
    assert found() == 2 * PAGE
    memory.memory.acknowledge([third])
    assert found() == 4 * PAGE


def test_i4_copies_of_a_preempted_request_prove_nothing_and_those_of_a_finished_one_do() -> None:
    for has_finished, found in ((False, 0), (True, 4 * PAGE)):
        memory = SmallMemory()
        memory.admit("a", [*range(4 * PAGE), 99])
        changes = memory.step("a")
        memory.release("a", has_finished=has_finished)
        check_integrity(memory.memory)
        memory.memory.acknowledge([transfer.transfer_id for transfer in changes.transfers])
        assert memory.memory.find_hit(memory.names["a"], num_tokens=4 * PAGE + 1).tokens == found
        check_integrity(memory.memory)


def test_i5_page_that_loses_a_block_is_lost_in_all_groups_and_for_all_its_readers() -> None:
    memory = SmallMemory()
    prompt = [*range(6 * PAGE), 99]
    memory.admit("a", prompt)
    memory.make_hot("a")
    memory.admit("b", prompt)  # finds all pages, and their copies on the device
    memory.step_and_acknowledge("a", "b")
    assert states(memory, "a")[:5] == states(memory, "b")[:5] == ["UNPINNED"] * 5
    shared = memory.table("a").frames[:5].copy()
    assert memory.table("b").frames[:5].tolist() == shared.tolist()
    unpinned = memory.pools.frames.blocks[shared].ravel()
    num_plain = memory.pools.device.num_free - len(unpinned)
    memory.pools.device.take(num_plain + 1)  # the first block of one shared page, of which the other block is still free
    lost = [page for page, state in enumerate(states(memory, "a")) if state == "HOST_ONLY"]
    assert len(lost) == 1
    assert states(memory, "b")[lost[0]] == "HOST_ONLY"
    assert memory.pools.device.num_free == len(unpinned) - 1
    assert not memory.pools.frames.frame_of_blocks()[memory.pools.frames.blocks[shared[lost]]].any()
    told = memory.step("a", "b").tables
    for name in ("a", "b"):
        assert told[name].moved.tolist() == lost
        assert told[name].resident.tolist() == [[0], [0]]
    memory.pools.device.take(1)  # the other block: nobody reads it any more
    assert memory.memory.totals.lost_pages == 2


def test_i6_copies_are_adopted_after_the_allocation_that_admission_counted_on() -> None:
    memory = SmallMemory()
    prompt = [*range(6 * PAGE), 99]
    memory.admit("a", prompt)
    memory.make_hot("a")
    memory.release("a")  # its pages are free blocks with content now
    needs = 1 + 2 + 4  # an indexer page, a page of two groups and a hot region; six indexer pages come from the hit
    memory.fill("b", leaving=needs + 6 + 2)
    spare = memory.pools.device.num_free - needs - 6
    memory.pools.device.take(spare)
    assert memory.pools.frames.copies
    assert memory.admit("c", [*prompt[:-1], 98]) is None
    assert memory.pools.device.num_free == 0
    memory.step("c")
    assert memory.memory.totals.adopted_pages == 0
    assert states(memory, "c") == ["HOST_ONLY"] * 6 + ["DIRTY"]


def test_i7_request_is_not_admitted_without_a_host_block_for_every_page() -> None:
    memory = SmallMemory(num_host_blocks=11, num_device_blocks=400)
    assert memory.admit("a", range(6 * PAGE)) is None
    assert memory.admit("b", [7] * (5 * PAGE)) is Refusal.HOST
    assert memory.admit("b", [7] * (4 * PAGE)) is None
    assert not memory.grow("b", [7])
    assert memory.table("a").host.all()
    assert memory.table("b").host.all()
    assert memory.memory.totals.deferred_by_host == 1


def test_i9_recycled_host_blocks_are_told_with_the_step_that_uses_them() -> None:
    memory = SmallMemory(num_host_blocks=8)
    memory.admit("a", range(7 * PAGE))
    used = set(memory.step_and_acknowledge("a").fresh_host_blocks.tolist())
    assert used == set(range(1, 8))
    memory.release("a")
    memory.admit("b", [7] * (3 * PAGE))
    fresh = memory.step("b").fresh_host_blocks.tolist()
    assert len(fresh) == 3
    assert set(fresh) <= used


def test_i10_request_is_told_of_a_lost_page_before_its_block_is_written() -> None:
    memory = SmallMemory()
    memory.admit("a", range(6 * PAGE))
    memory.make_hot("a")
    before = memory.pools.frames.blocks[memory.table("a").frames[:4]]
    memory.fill("b", leaving=0)
    changes = memory.step("a", "b")
    assert changes.tables["a"].moved.tolist() == [0, 1, 2, 3]
    assert not changes.tables["a"].resident.any()
    written = np.concatenate([changes.tables["b"].indexer, changes.tables["b"].resident.ravel()])
    assert np.isin(before, written).any(axis=1).all()
    assert not changes.is_all_resident


def test_i9_recycled_host_blocks_of_every_request_of_the_step_are_told() -> None:
    memory = SmallMemory()
    memory.admit("a", range(3 * PAGE))
    memory.admit("b", [7] * (2 * PAGE))
    assert sorted(memory.step("a", "b").fresh_host_blocks.tolist()) == [1, 2, 3, 4, 5]
    memory.grow("b", [7])
    assert memory.step("a", "b").fresh_host_blocks.tolist() == [6]


def test_i10_request_is_told_of_its_hot_region_once_though_nothing_else_is_new() -> None:
    memory = SmallMemory()
    memory.admit("a", range(3 * PAGE))
    memory.step_and_acknowledge("a")
    memory.table("a").hot_required = True
    memory.grow("a", [])
    told = memory.step("a").tables["a"]
    assert told.hot is not None
    assert told.hot.tolist() == [[10, 11], [12, 13]]  # behind three indexer pages and three pages of two groups
    assert told.moved.tolist() == []  # page 0, which is given up, stays where it is
    assert memory.step("a").tables == {}
