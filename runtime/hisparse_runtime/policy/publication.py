"""What other requests may find: the durable prefix of a request's pages on the host, and copies of those pages on the device.

Pages become complete on the host about a chunk behind the computation, so the prefix is published as it grows: a request that
is preempted in the middle of a long prompt finds its own beginning again.
"""

from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.pools import Pools
from hisparse_runtime.policy.telemetry import PENDING


def publish(pools: Pools, table: PageTable, *, num_tokens: int) -> None:
    """The first `num_tokens` tokens are computed, or will be by the step that is being planned: publish them when durable."""
    pages = num_tokens // pools.settings.page_tokens
    if pages <= min(table.num_published, table.num_ready, table.num_copies_recorded, table.num_indexer_published):
        table.publish_to = None
        return
    _publish_indexer(pools, table, min(pages, table.names.num_full))
    table.publish_to = pages
    publish_ready(pools, table)


def publish_ready(pools: Pools, table: PageTable) -> None:
    """Publishes as much as has become durable of what `publish` was asked for."""
    if table.publish_to is None:
        return
    pages = min(table.publish_to, table.num_ready)
    named = min(pages, table.names.num_full)
    if named > table.num_published:
        pools.host.publish(table.names, table.host[table.num_published : named], first_page=table.num_published)
        table.num_published = named
    _record_copies(pools, table, min(pages, table.num_pages))
    if table.num_ready >= table.publish_to:
        table.publish_to = None


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
    named = min(table.num_ready, len(blocks), table.names.num_full)
    if named > table.num_published:
        pools.host.publish(table.names, blocks[table.num_published : named], first_page=table.num_published)
    pools.host.release(blocks[::-1])
    table.leased_host = None


def _publish_indexer(pools: Pools, table: PageTable, pages: int) -> None:
    if pages > table.num_indexer_published:
        start = table.num_indexer_published
        pools.device.publish(table.names, table.indexer[start:pages], first_page=start)
        table.num_indexer_published = pages


def _record_copies(pools: Pools, table: PageTable, pages: int) -> None:
    start = table.num_copies_recorded
    if pages <= start:
        return
    table.num_copies_recorded = pages
    published = slice(start, min(pages, table.num_published))
    names = table.names.between(published.start, published.stop)
    for name, frame, state in zip(names, table.frames[published].tolist(), table.states[published].tolist(), strict=True):
        if frame and state != PENDING:
            pools.frames.record_copy(name, frame)
