"""What is known beside the command line: the release, the model's config.json, the kind of GPU and its KV memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hisparse_runtime.capacity.gpus import Gpu
from hisparse_runtime.geometry import ModelConfigError, SparseMlaModel, VllmVersion, read_model

_LOOK_AT_THE_TOP = frozenset({"0.32", "0.33"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """None where it is not known. `config`: the model's config.json, `index`: its safetensors index, `gpu_kv_bytes`: of a GPU."""

    version: VllmVersion
    config: Mapping[str, Any] | None = None
    index: Mapping[str, Any] | None = None
    gpu: Gpu | None = None
    gpu_kv_bytes: int | None = None

    @property
    def model(self) -> SparseMlaModel | None:
        """None also where config.json does not say enough."""
        if self.config is None:
            return None
        try:
            return read_model(self.config)
        except ModelConfigError:
            return None

    @property
    def is_known_to_lack_topk(self) -> bool:
        """0.32 and later look at the top of config.json only: models with a vision tower have it one level deeper."""
        if self.config is None or self.config.get("index_topk") is not None:
            return False
        return self.version.name in _LOOK_AT_THE_TOP or self._text.get("index_topk") is None

    @property
    def has_linear_attention(self) -> bool:
        """Layers without a KV cache of rows, as in GLM-5.3-Flash."""
        return "linear_attn_config" in self._text

    @property
    def _text(self) -> Mapping[str, Any]:
        config = self.config or {}
        nested = config.get("text_config")
        return nested if isinstance(nested, Mapping) else config

    @property
    def is_deepseek_v4(self) -> bool:
        return self.config is not None and str(self.config.get("model_type", "")).startswith("deepseek_v4")
