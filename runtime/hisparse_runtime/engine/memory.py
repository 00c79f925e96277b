"""The KV memory: device pool, host pool and offload tier, and the views through which they are read.

The device pool is one buffer. A block is at any time one of three things:

    resident page   [layer][token] rows of latents       of one page of one request, in the layers of one group
    hot page        [layer][slot]  rows of latents       copied from the host, one at a time
    indexer page    [layer][token] rows of indexer keys  in all layers
    +-------------------------------------------+--------+
    | layers of a group x page_tokens x row     | unused |       block = the larger of the two kinds
    +-------------------------------------------+--------+

Resident and hot pages have the same layout, so one index (block x page_tokens + offset) addresses either kind.
"""

import mmap
import os
import secrets
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hisparse_runtime.geometry import ModelGeometry

SHM_DIRECTORY = Path("/dev/shm")  # noqa: S108 - the pools are shared memory by design, not temporary files
_FLOAT_BYTES = 4
_MIB = 1 << 20


class PoolMemoryError(RuntimeError):
    """The memory of a pool cannot be had; the message says how much is missing."""


class KvMemory:
    """`latents` and `index_keys` view the device pool, `host` and `offload` the others; all by [block, layer, offset]. Layers are
    counted within a group in `latents`, else over the model."""

    def __init__(
        self,
        *,
        geometry: ModelGeometry,
        num_device_blocks: int,
        num_host_blocks: int,
        num_offload_slots: int,
        shm_directory: Path = SHM_DIRECTORY,
    ) -> None:
        layers, page = geometry.num_layers, geometry.page_tokens
        row, index_row = geometry.row_bytes // _FLOAT_BYTES, geometry.model.index_head_dim
        host_bytes = num_host_blocks * geometry.host_page_bytes
        offload_bytes = num_offload_slots * geometry.indexer_page_bytes
        _check_space(host_bytes=host_bytes, offload_bytes=offload_bytes, directory=shm_directory)
        device = np.zeros((num_device_blocks, geometry.device_block_bytes // _FLOAT_BYTES), dtype=np.float32)
        group_layers = max(geometry.layers_per_group)
        self.latents = device[:, : group_layers * page * row].reshape(-1, group_layers, page, row)
        self.index_keys = device[:, : layers * page * index_row].reshape(-1, layers, page, index_row)
        self.host = _map_pool("host pool", host_bytes, shm_directory).reshape(-1, layers, page, row)
        self.offload = _map_pool("offload tier", offload_bytes, shm_directory).reshape(-1, layers, page, index_row)


def _check_space(*, host_bytes: int, offload_bytes: int, directory: Path) -> None:
    stat = os.statvfs(directory)
    free_bytes = stat.f_bavail * stat.f_frsize
    needed = host_bytes + offload_bytes
    if needed > free_bytes:
        raise PoolMemoryError(
            f"needs {needed / _MIB:.1f} MiB, {directory} has {free_bytes / _MIB:.1f} MiB free: "
            f"host pool {host_bytes / _MIB:.1f} MiB and offload tier {offload_bytes / _MIB:.1f} MiB do not fit; "
            f"enlarge the volume at {directory} or lower --host-pool-gib"
        )


def _map_pool(name: str, size_bytes: int, directory: Path) -> NDArray[np.float32]:
    """A shared mapping whose file is unlinked at once, so that nothing is left behind however the process ends."""
    if size_bytes == 0:
        return np.empty(0, dtype=np.float32)
    path = directory / f"hisparse-{secrets.token_hex(8)}"
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            path.unlink()
            # Reserves the pages now: running out later would be a SIGBUS in the middle of a request.
            os.posix_fallocate(descriptor, 0, size_bytes)
            return np.frombuffer(mmap.mmap(descriptor, size_bytes), dtype=np.float32)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise PoolMemoryError(
            f"{name}: {size_bytes / _MIB:.1f} MiB in {directory} cannot be had: {error.strerror or error}"
        ) from error
