"""What other requests may find: the durable prefix of a request's pages on the host, and copies of those pages on the device.

Pages become complete on the host about a chunk behind the computation, so the prefix is published as it grows: a request that
is preempted in the middle of a long prompt finds its own beginning again.
"""

from collections.abc import Iterable

from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.pools import Pools
from hisparse_runtime.policy.telemetry import PENDING


def publish(pools: Pools, wanted: Iterable[tuple[PageTable, int]]) -> None:
    """So many tokens are computed, or will be by the step that is being planned: publish their pages when durable."""
    page_tokens = pools.settings.page_tokens
    unfinished = []
    names: list[bytes] = []
    blocks: list[int] = []
    for table, num_tokens in wanted:
        pages = num_tokens // page_tokens
        if pages <= min(table.num_published, table.num_ready, table.num_copies_recorded, table.num_indexer_published):
            table.publish_to = None
            continue
        table.publish_to = pages
        unfinished.append(table)
        start = table.num_indexer_published
        if pages > start:
            names += table.names.between(start, pages)
            blocks += table.indexer[start:pages].tolist()
            table.num_indexer_published = pages
    if blocks:
        pools.device.publish(names, blocks)
    publish_ready(pools, unfinished)


def publish_ready(pools: Pools, tables: Iterable[PageTable]) -> None:
    """Publishes as much as has become durable of what `publish` was asked for."""
    names: list[bytes] = []
    blocks: list[int] = []
    copies: list[tuple[bytes, int, int]] = []  # name, frame, state
    for table in tables:
        if table.publish_to is None:
            continue
        pages = min(table.publish_to, table.num_ready)
        start = table.num_published
        if pages > start:
            names += table.names.between(start, pages)
            blocks += table.host[start:pages].tolist()
            table.num_published = pages
        start = table.num_copies_recorded
        if pages > start:
            new = range(start, pages)
            copies += zip(table.names.between(start, pages), table.frames_of(new), table.states_of(new), strict=True)
            table.num_copies_recorded = pages
        if table.num_ready >= table.publish_to:
            table.publish_to = None
    if blocks:
        pools.host.publish(names, blocks)
    pools.frames.record_copies([(name, frame) for name, frame, state in copies if frame and state != PENDING])


def detach(pools: Pools, table: PageTable) -> None:
    """The request has finished with copies under way: its host blocks stay held until the last one is complete.

    Pages that are complete already need holders too, or they could be handed out before the prefix is published.
    """
    assert table.publish_to is not None
    table.leased_host = table.host[: table.publish_to].copy()
    pools.host.hold(table.leased_host)


def publish_detached(pools: Pools, table: PageTable) -> None:
    """The last copy of a finished request is complete."""
    assert table.leased_host is not None
    blocks = table.leased_host
    table.advance_ready()
    start, stop = table.num_published, min(table.num_ready, len(blocks))
    if stop > start:
        pools.host.publish(table.names.between(start, stop), blocks[start:stop].tolist())
    pools.host.release(blocks[::-1])
    table.leased_host = None
