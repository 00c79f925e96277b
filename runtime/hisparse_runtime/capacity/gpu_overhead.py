"""GPU memory that HiSparse takes beside the KV pool: the resolver's state and work space, allocated after vLLM profiled."""

from hisparse_runtime.capacity.hot_region import HotRegion
from hisparse_runtime.geometry import ModelGeometry, VllmVersion

_INT32_BYTES = 4
_INT16_BYTES = 2
# Top-K indices, host rows, device rows and counts of a step's selections.
_NUM_WORKSPACES = 4


def gpu_overhead_bytes(
    geometry: ModelGeometry,
    *,
    version: VllmVersion,
    hot: HotRegion,
    max_model_len: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    num_speculative_tokens: int,
) -> int:
    """Bytes on each GPU: per leader a slot map, an LRU and work space, one residency table, and in early versions staged rows."""
    swap_rows = min(max_num_batched_tokens, max_num_seqs * (1 + num_speculative_tokens))
    slots_bytes = max_num_seqs * hot.rows * (_INT32_BYTES + _INT16_BYTES)
    workspace_bytes = _NUM_WORKSPACES * swap_rows * hot.topk_rows * _INT32_BYTES
    total_bytes = geometry.num_indexer_layers * (slots_bytes + workspace_bytes)
    if version.keeps_residency_table:
        total_bytes += geometry.num_groups * max_num_seqs * geometry.pages(max_model_len) * _INT32_BYTES
    if version.stages_mirror_rows:
        total_bytes += geometry.num_layers * max_num_batched_tokens * geometry.row_bytes
    return total_bytes
