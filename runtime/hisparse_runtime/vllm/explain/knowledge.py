"""What is known beside the command line: the release, the model's config.json, the kind of GPU and its KV memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hisparse_runtime.capacity.gpus import Gpu
from hisparse_runtime.geometry import ModelConfigError, SparseMlaModel, VllmVersion, read_model


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
        """vLLM looks at the top of config.json only: models with a vision tower have it one level deeper."""
        return self.config is not None and self.config.get("index_topk") is None

    @property
    def is_deepseek_v4(self) -> bool:
        return self.config is not None and str(self.config.get("model_type", "")).startswith("deepseek_v4")
