from hisparse_runtime.policy.prefix import PageNames, PrefixIndex


def test_names_are_of_full_pages_and_depend_on_everything_before() -> None:
    first, second = PageNames(list(range(10)), page_tokens=4), PageNames([9, *range(1, 10)], page_tokens=4)
    assert first.num_full == 2
    assert len({first[0], first[1], second[0], second[1]}) == 4
    assert PageNames(list(range(8)), page_tokens=4).between(0, 2) == [first[0], first[1]]


def test_names_follow_a_growing_list() -> None:
    tokens = [1, 2, 3]
    names = PageNames(tokens, page_tokens=4)
    assert names.num_full == 0
    tokens += [4, 5, 6, 7, 8]
    assert names.num_full == 2
    assert names[1] == PageNames([1, 2, 3, 4, 5, 6, 7, 8], page_tokens=4)[1]


def test_block_named_first_is_found_until_it_is_handed_out() -> None:
    index = PrefixIndex(8)
    index.add([b"page"] * 3, [7, 3, 5])
    assert (index.find(b"page"), len(index)) == (7, 1)
    index.forget([7])
    assert index.find(b"page") == 3
    index.forget([5])
    index.forget([3])
    assert (index.find(b"page"), len(index), index.name_of(3)) == (None, 0, None)
