"""Which blocks are handed out next, in a memory that names no pages: those that were given back last."""

from hisparse_runtime.policy import check_integrity
from tests.unit.policy.small_memory import PAGE, SmallMemory


def next_blocks(memory: SmallMemory, count: int) -> list[int]:
    blocks: list[int] = memory.pools.device.queue.in_order()[:count].tolist()
    return blocks


def test_blocks_of_a_request_that_ends_are_handed_out_hot_ones_first_and_from_the_tail() -> None:
    memory = SmallMemory(caches_prefixes=False)
    memory.admit("a", range(3 * PAGE))  # indexer 1 2 3, groups 4 5 6 and 7 8 9
    memory.table("a").hot_required = True
    memory.grow("a", [])  # 10 11 and 12 13
    memory.release("a")
    assert next_blocks(memory, 14) == [13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 14]


def test_blocks_under_a_copy_are_handed_out_after_it_from_the_tail() -> None:
    memory = SmallMemory(caches_prefixes=False)
    memory.admit("a", range(2 * PAGE))  # indexer 1 2, groups 3 4 and 5 6
    transfers = memory.step("a").transfers
    memory.release("a", has_finished=False)
    assert next_blocks(memory, 3) == [2, 1, 7]
    memory.memory.acknowledge([transfer.transfer_id for transfer in transfers])
    assert next_blocks(memory, 7) == [6, 4, 5, 3, 2, 1, 7]


def test_order_of_acknowledgements_does_not_matter() -> None:
    orders = []
    for is_reversed in (False, True):
        memory = SmallMemory(caches_prefixes=False)
        memory.admit("a", range(6 * PAGE))
        memory.make_hot("a")
        memory.grow("a", range(6 * PAGE))
        ids = [transfer.transfer_id for transfer in memory.step("a").transfers]
        memory.memory.acknowledge(ids[::-1] if is_reversed else ids)
        orders.append(memory.pools.device.queue.in_order().tolist())
    assert orders[0] == orders[1]


def test_requests_grow_together_or_not_at_all() -> None:
    memory = SmallMemory(num_device_blocks=60)
    for name in ("a", "b"):
        memory.admit(name, range(PAGE))
    memory.fill("c", leaving=5)  # a page takes three: one for the indexer, one of each group
    wanted = [("a", PAGE + 1), ("b", PAGE + 1)]
    held_on_host = memory.pools.host.num_held
    assert not memory.memory.grow(wanted)
    assert (memory.pools.device.num_free, memory.pools.host.num_held) == (5, held_on_host)
    assert [memory.table(name).num_pages for name in ("a", "b")] == [1, 1]
    memory.release("c")
    assert memory.memory.grow(wanted)
    assert [memory.table(name).num_pages for name in ("a", "b")] == [2, 2]
    check_integrity(memory.memory)
