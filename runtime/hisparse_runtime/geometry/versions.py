"""What differs between the vLLM releases that know HiSparse, as far as sizes and start-up depend on it."""

from dataclasses import dataclass


class UnknownVersionError(ValueError):
    """The version is none that the arithmetic was checked against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmVersion:
    """One release. Every difference that changes a number has a field here, so that no other module asks for a version's name."""

    name: str
    # Resident groups are admitted with the tokens in flight; before, capacity counted them with the whole context.
    admits_by_window: bool = True
    # A pool that cannot hold one request of max_model_len is refused at planning.
    checks_host_minimum: bool = True
    # The GPU pool is checked against all device groups; before, only against the indexer's pages.
    checks_all_device_groups: bool = True
    # Start-up logs the concurrency of requests that read from the host.
    reports_steady_concurrency: bool = True
    # The resolver's need of shared memory is checked when the worker starts.
    checks_resolver_memory: bool = True
    # Hot regions are sized by the width of the top-K buffer, which k-pool models widen; before, by index_topk.
    sizes_by_topk_buffer: bool = False
    # How often the host pool is pinned at start-up: once for profiling and once for real, or only once.
    host_pool_pins: int = 2
    # A staging buffer on the GPU, one row per batched token and layer.
    stages_mirror_rows: bool = False
    # Without HiSparse, blocks are padded to whole rows where a row is plain fp8 or bfloat16.
    pads_ordinary_blocks: bool = False
    # GLM with kv_cache_dtype auto gets an fp8 cache on B200 and B300.
    defaults_glm_to_fp8: bool = True
    # Hopper has a kernel for plain fp8 rows (fp8_e4m3) whose cache layout HiSparse can use.
    hopper_takes_plain_fp8: bool = True
    # A table on the GPU, one entry per resident group, request and page.
    keeps_residency_table: bool = True
    known_bugs: tuple[str, ...] = ()


_BUGS_BEFORE_32 = (
    "cudagraph_mode=FULL is accepted and corrupts output (vllm #56158): leave it at FULL_AND_PIECEWISE",
    "the scheduler gets CPU-bound with many resident groups (vllm #57930)",
)
_BUGS_OF_30 = (
    *_BUGS_BEFORE_32,
    "pages without a host block stay on the GPU for ever when the host pool is full",
    "prefix hits under load can end the engine (vllm #57457: Cannot get N free blocks from the pool)",
    "the prefix of a request that finishes while its pages are being copied is lost",
)

VLLM_VERSIONS: dict[str, VllmVersion] = {
    version.name: version
    for version in (
        VllmVersion(
            name="0.30",
            admits_by_window=False,
            checks_host_minimum=False,
            checks_all_device_groups=False,
            reports_steady_concurrency=False,
            checks_resolver_memory=False,
            stages_mirror_rows=True,
            defaults_glm_to_fp8=False,
            hopper_takes_plain_fp8=False,
            keeps_residency_table=False,
            known_bugs=_BUGS_OF_30,
        ),
        VllmVersion(
            name="0.31",
            reports_steady_concurrency=False,
            stages_mirror_rows=True,
            pads_ordinary_blocks=True,
            defaults_glm_to_fp8=False,
            hopper_takes_plain_fp8=False,
            keeps_residency_table=False,
            known_bugs=_BUGS_BEFORE_32,
        ),
        VllmVersion(name="0.32"),
        VllmVersion(name="0.33", sizes_by_topk_buffer=True, host_pool_pins=1),
    )
}
NEWEST_VERSION = VLLM_VERSIONS["0.33"]


def vllm_version(text: str) -> VllmVersion:
    """The release that `0.33`, `0.33.0` or `v0.33.1` belongs to. Raises UnknownVersionError."""
    name = ".".join(text.strip().removeprefix("v").split(".")[:2])
    if name not in VLLM_VERSIONS:
        raise UnknownVersionError(
            f"vLLM {text!r}: sizes are known for {', '.join(VLLM_VERSIONS)}; HiSparse first came with 0.30, and a newer"
            f" release may plan differently: use one of these, or {NEWEST_VERSION.name} as an estimate"
        )
    return VLLM_VERSIONS[name]
