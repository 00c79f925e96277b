"""Names, labels and texts of the metrics that the connector adds. Where the embedded engine has the same metric, it has its name.

Three ways lead to a number: levels are measured in the engine core now and then, events are counted there one by one and sent as
differences, and rows of hot regions are upstream's own counts, corrected. A record of the engine core has numbers by key.
"""

from collections.abc import Mapping
from dataclasses import dataclass

RESIDENCIES = ("full", "mixed", "none")
PAGE_STATES = ("dirty", "pending", "clean_pinned", "unpinned", "host_only")
POOLS = ("host", "device")
POOL_KINDS = ("capacity", "used")

REQUESTS = "hisparse_requests"
PAGES = "hisparse_pages"
POOL_BYTES = "hisparse_pool_bytes"
HOT_REGIONS = "hisparse_hot_regions"
WRITTEN_BACK_BYTES = "hisparse_written_back_bytes"
HOT_HITS = "hisparse_hot_hits"
HOT_MISSES = "hisparse_hot_misses"
HOST_TO_DEVICE_BYTES = "hisparse_host_to_device_bytes"
ERRORS = "hisparse_telemetry_errors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`series`: for each number, its key in what the engine core sends, and its labels beside the model's and the engine's.

    Names of counters are without the `_total` that the client appends.
    """

    name: str
    documentation: str
    series: Mapping[str, Mapping[str, str]]

    @property
    def label_names(self) -> list[str]:
        return list(next(iter(self.series.values())))


def _single(name: str, documentation: str) -> Family:
    """The key is the name without the prefix."""
    return Family(name=name, documentation=documentation, series={name.removeprefix("hisparse_"): {}})


def _per_pool(unit: str) -> dict[str, dict[str, str]]:
    return {f"{pool}_{kind}_{unit}": {"pool": pool, "kind": kind} for pool in POOLS for kind in POOL_KINDS}


LEVELS = (
    Family(
        name=REQUESTS,
        documentation="Running requests by where their KV is.",
        series={f"requests_{residency}": {"residency": residency} for residency in RESIDENCIES},
    ),
    Family(
        name=PAGES,
        documentation="Pages of running requests by state.",
        series={f"pages_{state}": {"state": state} for state in PAGE_STATES},
    ),
    Family(
        name=POOL_BYTES,
        documentation=(
            "Pool sizes and use; blocks that can be handed out count as free. host: one replica's pool, which TP ranks share or"
            " hold a copy of each (hisparse_host_pool_copies). device: of one GPU. Before the first step the host's capacity is"
            " what was asked for."
        ),
        series=_per_pool("bytes"),
    ),
    Family(name="hisparse_pool_blocks", documentation="The same in blocks, the null block left out.", series=_per_pool("blocks")),
    _single(HOT_REGIONS, "Requests that hold a hot region, those whose KV is still on its way from elsewhere included."),
    _single("hisparse_host_pool_copies", "Host pools of one replica: 1 where its TP ranks share one."),
    _single("hisparse_host_pool_is_shared", "1 where the TP ranks of a replica share one host pool, else 0."),
    _single("hisparse_steady_state_concurrency", "Requests of the maximum length that can run once all read from the host."),
    _single(
        "hisparse_transition_watermark_blocks", "With fewer free device blocks, running requests turn to reading from the host."
    ),
    _single("hisparse_below_transition_watermark", "1 while fewer device blocks than that are free, else 0."),
)

EVENTS = (
    _single("hisparse_lost_pages", "Device pages given up to reuse while a request still read them."),
    _single("hisparse_adopted_pages", "Pages of a prefix hit on the host that were found on the device, too."),
    _single("hisparse_written_back_pages", "Pages whose copy from the device to the host was started."),
    _single(WRITTEN_BACK_BYTES, "Bytes of those pages, in all layers."),
    _single("hisparse_restored_pages", "Pages whose copy from the host to the device was started."),
)

_SAWTOOTH = (
    " True count: of one GPU, where upstream's adds up all TP ranks. Workers tell it every 2,000 steps, so it moves in jumps, the"
    " rest of an idle engine is missing, and rates over less than a few minutes mislead."
)
# By upstream's key in the worker's payload.
HOT_ROWS = {
    "cache_hits": _single(HOT_HITS, "Selected rows found in hot regions." + _SAWTOOTH),
    "cache_misses": _single(HOT_MISSES, "Selected rows copied from the host." + _SAWTOOTH),
    "host_to_device_bytes": _single(HOST_TO_DEVICE_BYTES, "Bytes of those rows." + _SAWTOOTH),
}

TELEMETRY_ERRORS = _single(ERRORS, "Failures of this telemetry itself. The engine goes on; levels stay as they were.")
