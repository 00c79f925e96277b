"""Reports of several pods become the residency of one object."""

from collections.abc import Sequence

from hisparse_operator.api.status import HotRegions, PageStates, PoolUse, RequestResidency, Residency
from hisparse_operator.telemetry.report import PoolReport, ResidencyReport


def aggregate(reports: Sequence[ResidencyReport], *, observed_at: str) -> Residency:
    """Sums over pods; percentages of the sums, not means of percentages."""
    hits = sum(report.hot.hits for report in reports)
    misses = sum(report.hot.misses for report in reports)
    return Residency(
        observed_at=observed_at,
        pods_reporting=len(reports),
        requests=RequestResidency(
            full=sum(report.requests.full for report in reports),
            mixed=sum(report.requests.mixed for report in reports),
            none=sum(report.requests.none for report in reports),
            waiting=sum(report.requests.waiting for report in reports),
        ),
        pages=PageStates(
            dirty=sum(report.pages.dirty for report in reports),
            pending=sum(report.pages.pending for report in reports),
            clean_pinned=sum(report.pages.clean_pinned for report in reports),
            unpinned=sum(report.pages.unpinned for report in reports),
            host_only=sum(report.pages.host_only for report in reports),
        ),
        host_pool=_pool([report.host_pool for report in reports]),
        device_pool=_pool([report.device_pool for report in reports]),
        offload=_pool([report.offload for report in reports]),
        hot=HotRegions(hits=hits, misses=misses, hit_percent=_percent(hits, hits + misses) if hits + misses else None),
    )


def _pool(pools: Sequence[PoolReport]) -> PoolUse:
    capacity_bytes = sum(pool.capacity_bytes for pool in pools)
    used_bytes = sum(pool.used_bytes for pool in pools)
    return PoolUse(capacity_bytes=capacity_bytes, used_bytes=used_bytes, used_percent=_percent(used_bytes, capacity_bytes))


def _percent(part: int, whole: int) -> int:
    """Rounded, but something is never shown as nothing, nor almost all as all."""
    if whole == 0 or part == 0:
        return 0
    if part >= whole:
        return 100
    return min(99, max(1, round(100 * part / whole)))
