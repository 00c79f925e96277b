"""Blocks for tokens: what a request needs, whether it can be had, and giving it back.

admission    host    a block for every page: a page without one could never leave the device
             device  indexer pages of the whole context | G x resident pages, at most a window | hot region, if it has a prefix
growth       host and device blocks of the new pages    | the hot region, once it is required

prefix hit   | host-only pages of the hit |  resident pages ...       read through the hot region from the first step on
import       | host-only pages, filled from elsewhere | last page resident: the last prompt token is computed here |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hisparse_runtime.policy.free_queue import Blocks
from hisparse_runtime.policy.page_table import PageTable
from hisparse_runtime.policy.pools import Pools
from hisparse_runtime.policy.prefix import PageNames
from hisparse_runtime.policy.publication import detach
from hisparse_runtime.policy.telemetry import CLEAN_PINNED, DIRTY, PENDING, UNPINNED

_NONE = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Pages that need not be computed, of `tokens` tokens. The host may know more of the prefix than the indexer's pages allow to
    use: an import or a load that covers those need not bring the latents again."""

    host: Blocks
    indexer: Blocks
    tokens: int


NO_HIT = PrefixHit(_NONE, _NONE, 0)


class Need(NamedTuple):
    """Blocks that must be free, those of a hit that nobody holds included."""

    device: int
    host: int


@dataclass(frozen=True, slots=True, eq=False)
class Leftover:
    """What a request still holds when it ends; a step in flight may be writing the device blocks."""

    host: Blocks
    indexer: Blocks
    frames: Blocks
    hot: Blocks


def find_hit(pools: Pools, names: PageNames, *, num_tokens: int) -> PrefixHit:
    """The longest prefix of which at least one token is left to compute, since its logits are needed."""
    settings = pools.settings
    if not settings.caches_prefixes:
        return NO_HIT
    dropped = int(settings.drops_last_hit_page)
    host = pools.host.find(names, max_pages=(num_tokens - 1) // settings.page_tokens + dropped)
    host = host[: max(len(host) - dropped, 0)]
    indexer = pools.device.find(names, max_pages=len(host) + dropped)
    indexer = indexer[: max(len(indexer) - dropped, 0)]
    return PrefixHit(host, indexer, len(indexer) * settings.page_tokens)


def admission_need(pools: Pools, hit: PrefixHit, *, num_tokens: int, imported_tokens: int, is_window_capped: bool) -> Need:
    """Of a request that holds nothing yet, for `num_tokens` tokens of which hit and import bring the first."""
    settings = pools.settings
    pages = settings.pages(num_tokens)
    host = max(pages - len(hit.host), 0) + pools.host.count_free(hit.host)
    indexer = max(pages - len(hit.indexer), 0) + pools.device.count_free(hit.indexer)
    if imported_tokens:
        resident = 1 + max(pages - settings.pages(hit.tokens + imported_tokens), 0)
    else:
        counted = min(pages, settings.window_pages) if is_window_capped else pages
        resident = max(counted - len(hit.indexer), 0)
    hot = settings.hot_blocks if imported_tokens or hit.tokens else 0
    return Need(indexer + settings.num_groups * resident + hot, host)


def growth_need(pools: Pools, table: PageTable, *, num_tokens: int, is_window_capped: bool = False) -> Need:
    """Of a request that holds memory, for `num_tokens` tokens in all."""
    settings = pools.settings
    pages = settings.pages(num_tokens)
    new = max(pages - table.num_pages, 0)
    resident = max(min(pages, settings.window_pages) - table.num_pages, 0) if is_window_capped else new
    hot = settings.hot_blocks if table.hot_required and not table.can_read_host else 0
    return Need(new + settings.num_groups * resident + hot, new)


def open_with_hit(pools: Pools, request_id: str, names: PageNames, hit: PrefixHit, *, imported_tokens: int) -> PageTable:
    """A table with the pages of the hit, and those of an import, which are to be filled from elsewhere."""
    settings = pools.settings
    pools.host.hold(hit.host)
    pools.device.hold(hit.indexer)
    table = pools.open_table(request_id, names)
    num_hit = len(hit.indexer)
    table.append(host=hit.host[:num_hit], indexer=hit.indexer, frames=None, is_valid=True)
    table.num_ready = table.num_planned = table.num_copies_recorded = table.pages_to_adopt = num_hit
    table.num_indexer_published = num_hit
    table.num_published = len(hit.host)
    table.hot_required = bool(num_hit or imported_tokens)
    if imported_tokens:
        table.importing_tokens = hit.tokens + imported_tokens
        pages = settings.pages(table.importing_tokens)
        host = np.concatenate((hit.host[num_hit:], pools.host.take(pages - len(hit.host))))
        device = pools.device.take(pages - num_hit + settings.num_groups)
        table.append(host=host, indexer=device[: pages - num_hit], frames=None, is_valid=False)
        tail = pools.frames.bind(device[pages - num_hit :][None])
        table.place((table.importing_tokens - 1) // settings.page_tokens, int(tail[0]))
    return table


def extend(pools: Pools, growths: Sequence[tuple[PageTable, int]]) -> None:
    """Takes the blocks that `growth_need` has counted for so many tokens of each table.

    All of them at once: one long turn at the queue gives what many short ones would. A table's share of the device blocks:

        indexer page of each new page | all new pages of group 0 | of group 1 | ... | hot region
    """
    settings, num_groups = pools.settings, pools.settings.num_groups
    shares = []
    num_pages = num_device = 0
    for table, num_tokens in growths:
        new = max(settings.pages(num_tokens) - table.num_pages, 0)
        hot = settings.hot_blocks if table.hot_required and not table.can_read_host else 0
        shares.append((table, num_pages, new, num_device, hot))
        num_pages += new
        num_device += new * (1 + num_groups) + hot
    host, device = pools.host.take(num_pages), pools.device.take(num_device)
    frames = pools.frames.bind(
        np.concatenate([device[at + new : at + new * (1 + num_groups)].reshape(num_groups, new).T for _, _, new, at, _ in shares])
    )
    for table, page, new, at, hot in shares:
        if new:
            table.append(
                host=host[page : page + new], indexer=device[at : at + new], frames=frames[page : page + new], is_valid=False
            )
        if hot:
            start = at + new * (1 + num_groups)
            pools.grant_hot(table, device[start : start + hot])


def close(pools: Pools, table: PageTable, *, has_finished: bool) -> Leftover:
    """The request ends, or is preempted. Its clean pages stay in the device pool as copies; the rest is for `give_back`.

    A preempted request's copies in flight prove nothing: the forward pass that fills their pages may never have run.
    """
    if table.publish_to is not None and has_finished and table.counts[PENDING]:
        detach(pools, table)
    table.publish_to = None
    states, frames = table.states, table.frames
    # From the tail, so that a prefix loses its tail pages before its head.
    unpinned = table.pages_in(UNPINNED)
    pools.frames.drop_reader(frames[unpinned], table.number, unpinned)
    pools.frames.unpin(frames[table.pages_in(CLEAN_PINNED)[::-1]], pools.device, by_group=True)
    held = frames[(states == DIRTY) | (states == PENDING)]
    leftover = Leftover(
        host=table.host.copy(), indexer=table.indexer.copy(), frames=held, hot=_NONE if table.hot is None else table.hot.ravel()
    )
    pools.close_table(table)
    return leftover


def give_back(pools: Pools, leftover: Leftover) -> None:
    """Tail first; of the device pool then hot blocks are handed out first, then pages without a copy, then the rest."""
    pools.host.release(leftover.host[::-1])
    pools.device.release(leftover.indexer[::-1])
    ended = pools.frames.release(leftover.frames[::-1])
    blocks = pools.frames.blocks[ended].T[::-1].ravel()
    pools.frames.end(ended)
    pools.device.release(blocks)
    pools.device.release(leftover.hot[::-1])
