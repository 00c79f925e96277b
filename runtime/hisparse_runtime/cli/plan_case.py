"""One engine to plan: what was asked for, wherever it was written, and what stands against it."""

from dataclasses import dataclass

from hisparse_runtime.capacity import CapacityError, EngineRequest, FieldNames
from hisparse_runtime.capacity.weights import WeightBytes, WeightsError
from hisparse_runtime.geometry import ModelConfigError, ModelGeometry, SparseMlaModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the plan is for, as far as it was given; `max_model_len` None is: as long as possible, or as the model allows.

    `preset_fields` of config.json were filled in, because it was not given or does not have them.
    """

    engine: str
    model: str
    preset_fields: tuple[str, ...]
    gpu: str | None
    num_gpus: int
    vllm_version: str | None
    kv_cache_dtype: str | None
    tensor_parallel_size: int
    data_parallel_size: int
    max_model_len: int | None
    max_num_batched_tokens: int
    max_num_seqs: int
    num_speculative_tokens: int

    @property
    def title(self) -> str:
        """`zai-org/GLM-5.3 on 8 x H200, vLLM 0.33, TP 8, KV cache fp8`: what the plan is for."""
        parts = [self.model or "the given config.json"]
        if self.gpu:
            parts[0] += f" on {self.num_gpus} x {self.gpu}"
        parts.append(f"vLLM {self.vllm_version}" if self.vllm_version else f"engine {self.engine}")
        if self.tensor_parallel_size > 1:
            parts.append(f"TP {self.tensor_parallel_size}")
        if self.data_parallel_size > 1:
            parts.append(f"DP {self.data_parallel_size}")
        if self.num_speculative_tokens:
            parts.append(f"{self.num_speculative_tokens} speculative tokens")
        if self.kv_cache_dtype:
            parts.append(f"KV cache {self.kv_cache_dtype}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the planner takes, and what is only told to people. `weights` is None where they cannot be counted.

    `is_kv_estimated`: KV memory was worked out from the GPU and the weights. `is_host_bounded`: a host pool or a budget is given.
    """

    asked: Asked
    names: FieldNames
    request: EngineRequest
    weights: WeightBytes | None
    gpu_weights_bytes: int | None
    is_kv_estimated: bool
    warnings: tuple[str, ...] = ()

    @property
    def is_host_bounded(self) -> bool:
        return self.request.host_pool_bytes is not None or self.request.budget_bytes is not None


class RefusedError(Exception):
    """It cannot be planned, or vLLM would not start. `reason` is that of the operator's conditions.

    `model` and `geometry` are there as far as they are known all the same.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        asked: Asked,
        model: SparseMlaModel | None = None,
        geometry: ModelGeometry | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.asked = asked
        self.model = model
        self.geometry = geometry
        self.warnings = warnings


def reason_of(error: ValueError) -> str:
    """The stable reason for what geometry and capacity raise."""
    if isinstance(error, CapacityError):
        return error.reason
    if isinstance(error, ModelConfigError | WeightsError):
        return "InvalidModelConfig"
    return "InvalidSpec"
