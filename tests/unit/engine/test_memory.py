import os
from pathlib import Path

import numpy as np
import pytest

from hisparse_runtime.engine.memory import KvMemory, PoolMemoryError
from hisparse_runtime.engine.model_config import ModelConfig


def make_memory(config: ModelConfig, directory: Path, *, host_blocks: int = 40) -> KvMemory:
    return KvMemory(
        geometry=config.geometry,
        num_device_blocks=100,
        num_host_blocks=host_blocks,
        num_offload_slots=14,
        shm_directory=directory,
    )


def test_views_have_one_entry_per_block_and_do_not_overlap_between_blocks(config: ModelConfig, tmp_path: Path) -> None:
    memory = make_memory(config, tmp_path)
    assert memory.latents.shape == (100, 1, 16, 24)
    assert memory.index_keys.shape == (100, 2, 16, 8)
    assert memory.host.shape == (40, 2, 16, 24)
    assert memory.offload.shape == (14, 2, 16, 8)
    memory.latents[3] = 1
    memory.index_keys[4] = 2
    assert np.all(memory.latents[3] == 1)
    assert np.count_nonzero(memory.latents) == 16 * 24 + 2 * 16 * 8
    memory.host[39] = 5
    assert np.all(memory.host[39] == 5)
    assert not memory.host[:39].any()


def test_pool_leaves_no_file_behind(config: ModelConfig, tmp_path: Path) -> None:
    memory = make_memory(config, tmp_path)
    assert list(tmp_path.iterdir()) == []
    memory.host[0] = 1


def test_pool_larger_than_the_volume_says_how_much_is_missing(config: ModelConfig, tmp_path: Path) -> None:
    stat = os.statvfs(tmp_path)
    # Well above all that the volume has: what is free changes while tests run.
    blocks = 2 * stat.f_blocks * stat.f_frsize // 3072
    with pytest.raises(PoolMemoryError, match=r"needs \d+\.\d MiB, .* has \d+\.\d MiB free: .* lower --host-pool-gib"):
        make_memory(config, tmp_path, host_blocks=blocks)
    assert list(tmp_path.iterdir()) == []
