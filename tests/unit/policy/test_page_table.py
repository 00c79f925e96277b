from hisparse_runtime.policy import PageState, PageTable, ResidencyClass


def test_page_goes_through_its_states_in_order_and_leaves_the_device_at_the_end() -> None:
    table = PageTable()
    table.append(host=7, resident=9, indexer=8)
    states = [table.advance(0) for _ in range(4)]
    assert states == [PageState.PENDING, PageState.CLEAN_PINNED, PageState.UNPINNED, PageState.HOST_ONLY]
    assert table.resident == [0]
    assert [table.count(state) for state in PageState] == [0, 0, 0, 0, 1]


def test_clean_set_holds_exactly_the_clean_pinned_pages() -> None:
    table = PageTable()
    for block in (1, 2):
        table.append(host=block, resident=block, indexer=block + 10)
        table.advance(block - 1)
        table.advance(block - 1)
    table.advance(0)
    assert table.clean == {1}


def test_residency_class_follows_the_pages() -> None:
    table = PageTable()
    table.append_hit(host=1, indexer=2)
    seen = [table.residency]
    table.append(host=3, resident=4, indexer=5)
    # the page being filled is not part of the finished prefix
    seen.append(table.residency)
    table.advance(1)
    table.num_sealed = 2
    seen.append(table.residency)
    assert seen == [ResidencyClass.NONE, ResidencyClass.NONE, ResidencyClass.MIXED]

    resident = PageTable()
    resident.append(host=1, resident=2, indexer=3)
    assert resident.residency is ResidencyClass.FULL
