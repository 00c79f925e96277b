"""One engine to plan: what was asked for, wherever it was written, and what stands against it."""

from collections.abc import Iterator
from dataclasses import dataclass

from hisparse_runtime.capacity import CapacityError, EngineRequest, FieldNames, human_bytes
from hisparse_runtime.capacity.gpu_memory import RUNTIME_RESERVE_BYTES
from hisparse_runtime.capacity.weights import WeightBytes
from hisparse_runtime.geometry import (
    ModelConfigError,
    ModelGeometry,
    SparseMlaModel,
    VllmVersion,
    lay_out,
    vllm_cache_format,
)


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
    expert_parallel: bool | None
    async_scheduling: bool | None

    @property
    def title(self) -> str:
        """`zai-org/GLM-5.3 on 8 x H200, vLLM 0.33, TP 8, KV cache fp8`: what the plan is for."""
        return self._title(f" on {self.num_gpus} x {self.gpu}" if self.gpu else "")

    @property
    def title_of_any_gpu(self) -> str:
        """The same for several kinds of GPU."""
        return self._title(f" on {self.num_gpus} GPUs")

    def _title(self, where: str) -> str:
        parts = [f"vLLM {self.vllm_version}" if self.vllm_version else f"engine {self.engine}"]
        if self.tensor_parallel_size > 1:
            parts.append(f"TP {self.tensor_parallel_size}")
        if self.data_parallel_size > 1:
            parts.append(f"DP {self.data_parallel_size}")
        if self.num_speculative_tokens:
            parts.append(f"{self.num_speculative_tokens} speculative tokens")
        if self.kv_cache_dtype:
            parts.append(f"KV cache {self.kv_cache_dtype}")
        return ", ".join([f"{self.model or 'the given config.json'}{where}", *parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the planner takes, and what is only told to people. Both weights are None where they cannot be counted.

    `gpu_memory_utilization`: KV memory was estimated with it; None where KV memory is given.
    """

    asked: Asked
    names: FieldNames
    request: EngineRequest
    weights: WeightBytes | None
    gpu_weights_bytes: int | None
    gpu_memory_utilization: float | None
    warnings: tuple[str, ...] = ()

    @property
    def is_host_bounded(self) -> bool:
        """Whether the size of the host pool is given, or the memory that it comes from."""
        return self.request.host_pool_bytes is not None or self.request.budget_bytes is not None

    @property
    def arithmetic(self) -> Iterator[str]:
        """How the KV memory of a GPU was estimated, as steps in front of the plan's own."""
        device, weights_bytes, share = self.request.gpu, self.gpu_weights_bytes, self.gpu_memory_utilization
        if device is None or self.weights is None or weights_bytes is None or share is None:
            return
        weights, ranks = self.weights, self.asked.tensor_parallel_size
        yield (
            f"weights: {human_bytes(weights.total_bytes)}, {human_bytes(weights.expert_bytes)} of them routed experts that"
            f" {self.asked.num_gpus} GPUs share, the rest split over {ranks} ranks or held whole:"
            f" {human_bytes(weights_bytes)} on each GPU"
        )
        yield (
            f"GPU KV memory, estimated: {human_bytes(device.visible_memory_bytes)} of {device.name} x {share:g} -"
            f" {human_bytes(weights_bytes)} weights - {human_bytes(RUNTIME_RESERVE_BYTES)} for the runtime ="
            f" {human_bytes(self.request.settings.gpu_kv_bytes)}"
        )


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


def known_geometry(
    model: SparseMlaModel, *, kv_cache_dtype: str, capability: tuple[int, int], version: VllmVersion, num_speculative_tokens: int
) -> ModelGeometry:
    """The geometry, before anything is planned. Raises CacheFormatError."""
    cache_format = vllm_cache_format(model, kv_cache_dtype=kv_cache_dtype, capability=capability, version=version)
    return lay_out(model, cache_format, with_mtp=num_speculative_tokens > 0)


def reason_of(error: ValueError) -> str:
    """The stable reason for what geometry and capacity raise."""
    if isinstance(error, CapacityError):
        return error.reason
    if isinstance(error, ModelConfigError):
        return "InvalidModelConfig"
    return "InvalidSpec"
