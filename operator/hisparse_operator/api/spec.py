"""`spec` of a HiSparseDeployment: what a person writes.

Field descriptions become the text of `kubectl explain hsd`, constraints become the CRD's schema and CEL rules.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from hisparse_operator.api.quantity import Quantity


class SpecModel(BaseModel):
    """camelCase outside, snake_case inside, nothing unknown, nothing changed after parsing."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class EngineType(StrEnum):
    """Which engine serves the model."""

    VLLM = "VLLM"
    EMBEDDED = "Embedded"


class Model(SpecModel):
    name: str = Field(min_length=1, max_length=253, description="Name of the model in requests (`model`).")
    config: dict[str, Any] = Field(
        default={},
        description="The model's config.json as an object. Its layers, row sizes and index top-K decide every memory size."
        " What is left out is filled in for models that are known by their name (GLM-5.x, DeepSeek-V3.2).",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class Vllm(SpecModel):
    """How vLLM is run, as far as memory sizes depend on it; fields are called like vLLM's options."""

    version: str | None = Field(
        default=None,
        pattern=r"^v?0\.[0-9]{1,3}(\.[0-9]{1,3})?$",
        description="vLLM release in the engine image. Sizes are known for 0.30 to 0.33; default: the newest of them.",
    )
    gpu: str = Field(
        min_length=1,
        max_length=63,
        description="Kind of GPU, such as H200 or B200: it decides the KV row format and the estimates.",
    )
    tensor_parallel_size: int = Field(default=1, ge=1, le=64, description="GPUs of one replica of the engine.")
    data_parallel_size: int = Field(
        default=1, ge=1, le=64, description="Replicas of the engine in one pod, each with its own pools."
    )
    expert_parallel: bool = Field(default=True, description="Whether routed experts are split over all GPUs of the pod.")
    kv_cache_dtype: str = Field(
        default="auto", max_length=32, pattern="^[a-z0-9_]+$", description="KV cache dtype, such as auto, fp8 or bfloat16."
    )
    num_speculative_tokens: int = Field(default=0, ge=0, le=16, description="Draft tokens of MTP speculation; 0 is none.")
    async_scheduling: bool = Field(default=True, description="Whether a step is scheduled while the one before still runs.")
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1, description="Share of each GPU that vLLM may use.")
    extra_args: list[Annotated[str, StringConstraints(max_length=1024)]] = Field(
        default=[],
        max_length=64,
        description="More arguments of `vllm serve`. What the memory plan decides cannot be given here.",
    )


def _rule(rule: str, message: str) -> dict[str, JsonValue]:
    return {"rule": rule, "message": message, "reason": "FieldValueInvalid"}


_EMBEDDED_NEEDS_POOL = "gpuKVCache is required for type Embedded, whose device pool is a part of the pod's memory"
_EMBEDDED_HAS_NO_VLLM = "vllm must be left out for type Embedded"
_VLLM_NEEDS_VLLM = "vllm is required for type VLLM: at least vllm.gpu, which decides the KV row format"
_VLLM_GPUS_FOLLOW = "gpus must be left out for type VLLM: it is vllm.tensorParallelSize x vllm.dataParallelSize"


class Engine(SpecModel):
    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                _rule("self.type != 'Embedded' || has(self.gpuKVCache)", _EMBEDDED_NEEDS_POOL),
                _rule("self.type != 'Embedded' || !has(self.vllm)", _EMBEDDED_HAS_NO_VLLM),
                _rule("self.type != 'VLLM' || has(self.vllm)", _VLLM_NEEDS_VLLM),
                _rule("self.type != 'VLLM' || !has(self.gpus) || self.gpus == 0", _VLLM_GPUS_FOLLOW),
            ]
        }
    )

    type: EngineType = Field(
        description="Engine that serves the model. VLLM: planned, pods are to come. Embedded: the project's own, on a CPU."
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        pattern=r"^\S+$",
        description="Engine image. Default: the operator's own choice, set at its installation.",
    )
    max_model_len: int = Field(ge=1, le=1 << 24, description="Longest request, prompt and output together, in tokens.")
    max_num_seqs: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Most requests that run at once. Default: 16 for Embedded, 256 for VLLM.",
    )
    max_num_batched_tokens: int | None = Field(
        default=None,
        ge=1,
        le=1 << 20,
        description="Most tokens that one engine step processes. Default: 512 for Embedded, 8192 for VLLM.",
    )
    gpu_kv_cache: Quantity | None = Field(
        default=None,
        alias="gpuKVCache",
        description="KV memory of one GPU, home of resident pages, hot regions and indexer pages."
        " Default for VLLM: estimated from the GPU and the model's weights.",
    )
    device_buffer_size: int | None = Field(
        default=None, ge=1, le=32768, description="Rows of one request's hot region. Default: 2 x index_topk of the model."
    )
    cpu: Quantity = Field(default="1", description="CPU request of one pod.")
    gpus: int = Field(default=0, ge=0, le=64, description="GPUs (nvidia.com/gpu) of one pod of type Embedded.")
    vllm: Vllm | None = Field(default=None, description="How vLLM is run. Required for type VLLM.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.type is EngineType.EMBEDDED and self.gpu_kv_cache is None:
            raise ValueError(_EMBEDDED_NEEDS_POOL)
        if self.type is EngineType.EMBEDDED and self.vllm is not None:
            raise ValueError(_EMBEDDED_HAS_NO_VLLM)
        if self.type is EngineType.VLLM and self.vllm is None:
            raise ValueError(_VLLM_NEEDS_VLLM)
        if self.type is EngineType.VLLM and self.gpus:
            raise ValueError(_VLLM_GPUS_FOLLOW)
        return self

    @property
    def num_seqs(self) -> int:
        """`max_num_seqs`, or the engine's default."""
        return self.max_num_seqs or (16 if self.vllm is None else 256)

    @property
    def num_batched_tokens(self) -> int:
        """`max_num_batched_tokens`, or the engine's default."""
        return self.max_num_batched_tokens or (512 if self.vllm is None else 8192)

    @property
    def pod_gpus(self) -> int:
        """GPUs of one pod, of whichever type."""
        return self.gpus if self.vllm is None else self.vllm.tensor_parallel_size * self.vllm.data_parallel_size


class HiSparse(SpecModel):
    # A number as in vLLM, whose option of the same name it becomes; GiB = 2^30 bytes.
    host_pool_gib: float | None = Field(
        default=None,
        alias="hostPoolGiB",
        gt=0,
        le=1 << 20,
        description="Host pool of one pod in GiB, for KV that the device pool cannot hold. Default: tuned from node memory.",
    )


class Offload(SpecModel):
    cpu_bytes_to_use: Quantity | None = Field(
        default=None,
        description="Host memory of one pod for indexer KV of cached prefixes. Default: as many tokens as the host pool holds.",
    )


class HostMemory(SpecModel):
    max: Quantity | None = Field(
        default=None,
        description="Most memory that one pod may request. Default: its share of what nodes have left.",
    )


class Toleration(SpecModel):
    """A taint that the pods tolerate, as in a pod's spec."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
                    "message": "value must be left out when operator is Exists, which tolerates every value",
                    "reason": "FieldValueInvalid",
                },
                {
                    "rule": "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
                    "message": "operator must be Exists when key is left out, which tolerates every taint",
                    "reason": "FieldValueInvalid",
                },
                {
                    "rule": "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                    "message": "tolerationSeconds needs effect NoExecute: nothing else evicts a running pod",
                    "reason": "FieldValueInvalid",
                },
            ]
        }
    )

    key: str | None = Field(
        default=None, max_length=316, description="Key of the taint. Left out, with operator Exists: every taint."
    )
    operator: str | None = Field(
        default=None, pattern="^(Exists|Equal)$", description="Exists: any value. Equal (default): this value."
    )
    value: str | None = Field(default=None, max_length=63, description="Value of the taint.")
    effect: str | None = Field(
        default=None,
        pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$",
        description="Effect of the taint. Left out: every effect.",
    )
    toleration_seconds: int | None = Field(
        default=None, description="How long a NoExecute taint is tolerated. Left out: for ever."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError("value must be left out when operator is Exists, which tolerates every value")
        if not self.key and self.operator != "Exists":
            raise ValueError("operator must be Exists when key is left out, which tolerates every taint")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds needs effect NoExecute: nothing else evicts a running pod")
        return self


LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]


class HiSparseDeploymentSpec(SpecModel):
    """What is served, and within which bounds."""

    replicas: int = Field(default=1, ge=0, le=256, description="Number of engine pods.")
    model: Model = Field(description="The model that is served.")
    engine: Engine = Field(description="The engine that serves it, and the resources of one pod.")
    hi_sparse: HiSparse = Field(default=HiSparse(), description="The host pool of Hybrid HiSparse.")
    offload: Offload = Field(default=Offload(), description="The offload tier of the indexer KV.")
    host_memory: HostMemory = Field(default=HostMemory(), description="Bounds of the memory plan.")
    node_selector: dict[str, LabelValue] = Field(
        default={}, max_length=32, description="Labels that a node must carry to take part in sizing and to run a pod."
    )
    tolerations: list[Toleration] = Field(default=[], max_length=16, description="Taints that the pods tolerate.")
