"""Pools that a killed engine left in /dev/shm, which outlives a container's restart as a volume of the pod."""

from pathlib import Path

from hisparse_runtime.vllm.launch.measure import SHM

# Host pools and offload regions of 0.30 to 0.33; segments of a region end in .1, .2, ...
_PATTERN = "vllm_offload_*.mmap*"


def remove_stale_regions(*, folder: Path = SHM) -> int:
    """Bytes that were freed. Only before an engine is started, and only where no other engine uses `folder`.

    vLLM unlinks a region as soon as all its workers have it; one that was killed before that leaves its file, and the
    next start would find hundreds of GiB of /dev/shm taken by nobody.
    """
    freed_bytes = 0
    for path in sorted(folder.glob(_PATTERN)):
        try:
            used_bytes = path.stat().st_blocks * 512
            path.unlink()
        except OSError:
            continue
        freed_bytes += used_bytes
    return freed_bytes
