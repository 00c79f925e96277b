"""config.json -> layers, row bytes, groups, block bytes. Pure: no client, no clock, no environment, no arrays."""

from hisparse_runtime.geometry.cache_format import VLLM_PAGE_TOKENS, CacheFormat, CacheFormatError, vllm_cache_format
from hisparse_runtime.geometry.config_fields import MOST_LAYERS, ModelConfigError, whole_number
from hisparse_runtime.geometry.index_sharing import indexer_owners
from hisparse_runtime.geometry.layout import ModelGeometry, embedded_geometry, lay_out
from hisparse_runtime.geometry.model import SparseMlaModel, read_model
from hisparse_runtime.geometry.presets import complete_config, preset_names
from hisparse_runtime.geometry.versions import (
    NEWEST_VERSION,
    VLLM_VERSIONS,
    UnknownVersionError,
    VllmVersion,
    vllm_version,
)

__all__ = [
    "MOST_LAYERS",
    "NEWEST_VERSION",
    "VLLM_PAGE_TOKENS",
    "VLLM_VERSIONS",
    "CacheFormat",
    "CacheFormatError",
    "ModelConfigError",
    "ModelGeometry",
    "SparseMlaModel",
    "UnknownVersionError",
    "VllmVersion",
    "complete_config",
    "embedded_geometry",
    "indexer_owners",
    "lay_out",
    "preset_names",
    "read_model",
    "vllm_cache_format",
    "vllm_version",
    "whole_number",
]
