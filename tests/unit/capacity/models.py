"""Models of the capacity tests: a tiny one for the embedded engine, and those that vLLM serves, by their presets."""

from hisparse_runtime.geometry import SparseMlaModel, complete_config, embedded_geometry, read_model

TINY_CONFIG = {
    "num_hidden_layers": 4,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "index_head_dim": 16,
    "index_topk": 64,
    "max_position_embeddings": 8192,
}
TINY = embedded_geometry(TINY_CONFIG)
TINY_PAGE_BYTES = 12 * 1024
TINY_INDEXER_PAGE_BYTES = 4 * 1024


def preset_model(name: str) -> SparseMlaModel:
    return read_model(complete_config(name, {})[0])
