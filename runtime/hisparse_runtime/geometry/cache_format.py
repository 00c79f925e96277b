"""How many bytes one token takes: the cache formats of vLLM's sparse attention backends, and that of the embedded engine."""

from dataclasses import dataclass

from hisparse_runtime.geometry.config_fields import ModelConfigError
from hisparse_runtime.geometry.model import SparseMlaModel
from hisparse_runtime.geometry.versions import VllmVersion

# Tokens of one block. vLLM's indexer kernels read pages of 64 tokens, whatever larger --block-size is asked for.
VLLM_PAGE_TOKENS = 64
EMBEDDED_PAGE_TOKENS = 16

_FLOAT32_BYTES = 4
_BFLOAT16_BYTES = 2
# 512 fp8 values, 4 float32 scales, 64 bfloat16 rotary values: one opaque blob, whatever the model's dimensions say.
_FP8_DS_MLA_BYTES = 656
_NVFP4_DS_MLA_BYTES = 352
# The indexer's keys are fp8 with a float32 scale for each 128 of them.
_INDEXER_SCALE_BLOCK = 128
_INDEXER_SCALE_BYTES = 4

# KV cache dtype -> format of vLLM's preferred backend that takes it, by the GPU's major compute capability.
_FORMATS = {
    # Hopper: FlashMLA stores fp8 as fp8_ds_mla, FlashInfer takes the plain format under its full name
    9: {"auto": "bfloat16", "bfloat16": "bfloat16", "fp8": "fp8_ds_mla", "fp8_ds_mla": "fp8_ds_mla", "fp8_e4m3": "fp8"},
    # B200, B300: FlashInfer's trtllm-gen for plain fp8, FlashMLA for the packed formats
    10: {
        "auto": "bfloat16",
        "bfloat16": "bfloat16",
        "fp8": "fp8",
        "fp8_e4m3": "fp8",
        "fp8_ds_mla": "fp8_ds_mla",
        "nvfp4_ds_mla": "nvfp4_ds_mla",
    },
    # RTX PRO 6000: FlashInfer's only format there
    12: {"auto": "fp8_ds_mla", "fp8": "fp8_ds_mla", "fp8_e4m3": "fp8_ds_mla", "fp8_ds_mla": "fp8_ds_mla"},
}
# On B200 and B300, vLLM makes fp8 of auto for these.
_FP8_BY_DEFAULT = frozenset({"glm_moe_dsa"})
# For these, vLLM makes auto of bfloat16, which is fp8 on an RTX PRO 6000.
_AUTO_FOR_BFLOAT16 = frozenset({"deepseek_v32"})
# FlashInfer's kernels for the RTX PRO 6000 have this top-K built in.
_SM120_TOPK = 2048


class CacheFormatError(ValueError):
    """The GPU's kernels have no such KV cache; the message says which ones they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """Bytes of one token in one layer: its latent (`row_bytes`) and its key in a layer that owns an indexer.

    A page is `page_tokens` tokens.
    """

    name: str
    page_tokens: int
    row_bytes: int
    indexer_page_bytes: int

    @property
    def page_bytes(self) -> int:
        """Latents of one page in one layer."""
        return self.page_tokens * self.row_bytes


def vllm_cache_format(
    model: SparseMlaModel, *, kv_cache_dtype: str, capability: tuple[int, int], version: VllmVersion
) -> CacheFormat:
    """The format that vLLM's default backend for the GPU stores.

    Raises CacheFormatError for one that it refuses, ModelConfigError for keys that do not fit into pages.
    """
    name = _format_name(model, kv_cache_dtype, capability=capability, version=version)
    latent = model.kv_lora_rank + model.qk_rope_head_dim
    row_bytes = {
        "bfloat16": latent * _BFLOAT16_BYTES,
        "fp8": latent,
        "fp8_ds_mla": _FP8_DS_MLA_BYTES,
        "nvfp4_ds_mla": _NVFP4_DS_MLA_BYTES,
    }[name]
    if VLLM_PAGE_TOKENS % model.index_kpool:
        raise ModelConfigError(
            f"config.json: index_kpool {model.index_kpool} must divide the {VLLM_PAGE_TOKENS} tokens of a page, so that"
            " no pool spans two"
        )
    key_bytes = model.index_head_dim + model.index_head_dim // _INDEXER_SCALE_BLOCK * _INDEXER_SCALE_BYTES
    return CacheFormat(
        name=name,
        page_tokens=VLLM_PAGE_TOKENS,
        row_bytes=row_bytes,
        indexer_page_bytes=VLLM_PAGE_TOKENS // model.index_kpool * key_bytes,
    )


def _format_name(model: SparseMlaModel, kv_cache_dtype: str, *, capability: tuple[int, int], version: VllmVersion) -> str:
    major, text = capability[0], f"{capability[0]}.{capability[1]}"
    formats = dict(_FORMATS.get(major, {}))
    if major == 9 and not version.hopper_takes_plain_fp8:
        del formats["fp8_e4m3"]
    if not formats:
        raise CacheFormatError(f"compute capability {text}: vLLM's sparse attention backends need 9.0, 10.x or 12.x")
    if major == 12 and model.index_topk != _SM120_TOPK:
        raise CacheFormatError(
            f"index_topk {model.index_topk}: vLLM's sparse attention at compute capability {text} takes {_SM120_TOPK} only"
        )
    if kv_cache_dtype == "bfloat16" and model.model_type in _AUTO_FOR_BFLOAT16:
        kv_cache_dtype = "auto"
    if major == 10 and kv_cache_dtype == "auto" and version.defaults_glm_to_fp8 and model.model_type in _FP8_BY_DEFAULT:
        return "fp8"
    if kv_cache_dtype not in formats:
        raise CacheFormatError(
            f"kv_cache_dtype {kv_cache_dtype!r}: vLLM {version.name} has no sparse attention backend for it at compute capability"
            f" {text}; use one of {', '.join(formats)}"
        )
    return formats[kv_cache_dtype]


def embedded_cache_format(model: SparseMlaModel) -> CacheFormat:
    """float32 everywhere: the embedded engine computes on a CPU."""
    if model.index_kpool != 1:
        raise ModelConfigError(f"config.json: index_kpool is {model.index_kpool}: the embedded engine has a key for each token")
    return CacheFormat(
        name="float32",
        page_tokens=EMBEDDED_PAGE_TOKENS,
        row_bytes=(model.kv_lora_rank + model.qk_rope_head_dim) * _FLOAT32_BYTES,
        indexer_page_bytes=EMBEDDED_PAGE_TOKENS * model.index_head_dim * _FLOAT32_BYTES,
    )
