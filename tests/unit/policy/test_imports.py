"""Pages that a prefill server fills: they land on the host, but for the one that the next token is written to."""

from hisparse_runtime.policy import PageState, check_integrity
from tests.unit.policy.small_memory import PAGE, SmallMemory


def arrived(num_tokens: int) -> SmallMemory:
    memory = SmallMemory()
    assert memory.admit("a", range(num_tokens), imported_tokens=num_tokens) is None
    check_integrity(memory.memory)
    memory.memory.finish_import("a")
    memory.memory.publish([("a", num_tokens)])
    check_integrity(memory.memory)
    return memory


def test_import_takes_a_hot_region_and_one_resident_page() -> None:
    memory = arrived(5 * PAGE + 1)
    table = memory.table("a")
    assert table.states.tolist() == [PageState.HOST_ONLY] * 5 + [PageState.PENDING]
    assert table.can_read_host
    assert memory.pools.device.num_held == 6 + 2 + 4
    (restore,) = memory.step("a").transfers
    assert (restore.page, restore.is_restore) == (5, True)
    memory.memory.acknowledge([restore.transfer_id])
    # Its row is on the host, but the page is not full.
    assert table.states[5] == PageState.DIRTY
    check_integrity(memory.memory)


def test_restored_page_that_is_full_is_clean_and_a_copy_for_others() -> None:
    memory = arrived(5 * PAGE)
    (restore,) = memory.step("a").transfers
    memory.memory.acknowledge([restore.transfer_id])
    assert memory.table("a").states[4] == PageState.CLEAN_PINNED
    assert [frame for _, frame in memory.pools.frames.copies.items()] == [memory.table("a").frames[4]]


def test_page_is_written_back_after_it_was_restored_and_filled() -> None:
    memory = arrived(5 * PAGE + 1)
    (restore,) = memory.step("a").transfers
    memory.grow("a", range(PAGE))
    assert memory.step("a").transfers == []  # full by now, but still being restored
    memory.memory.acknowledge([restore.transfer_id])
    (write_back,) = memory.step("a").transfers
    assert (write_back.page, write_back.is_restore) == (5, False)


def test_published_import_is_found_by_others() -> None:
    memory = arrived(5 * PAGE)
    assert memory.admit("b", [*range(5 * PAGE), 99]) is None
    assert memory.table("b").num_ready == 5


def test_import_that_is_given_up_leaves_nothing_held() -> None:
    memory = arrived(5 * PAGE + 1)
    (restore,) = memory.step("a").transfers
    memory.release("a")
    check_integrity(memory.memory)
    memory.memory.acknowledge([restore.transfer_id])
    assert memory.pools.device.num_held == memory.pools.host.num_held == 0


def test_page_that_was_only_restored_is_not_found_when_its_request_has_ended() -> None:
    memory = arrived(5 * PAGE + 1)
    (restore,) = memory.step("a").transfers
    memory.grow("a", range(3))  # fills the page, of which the host has one row
    memory.step("a")
    memory.release("a")
    memory.memory.acknowledge([restore.transfer_id])
    assert memory.memory.find_hit(memory.names["a"], num_tokens=6 * PAGE + 1).tokens == 5 * PAGE
    check_integrity(memory.memory)
