"""`spec` of a HiSparseDeployment: what a person writes.

Field descriptions become the text of `kubectl explain hsd`, constraints become the CRD's schema and CEL rules.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from hisparse_operator.api.pod import LabelValue, Pod, Toleration
from hisparse_operator.api.quantity import Quantity
from hisparse_operator.api.spec_model import SpecModel, rule
from hisparse_runtime.vllm.pod_plan import Mode


class EngineType(StrEnum):
    """Which engine serves the model."""

    VLLM = "VLLM"
    EMBEDDED = "Embedded"


class Model(SpecModel):
    name: str = Field(min_length=1, max_length=253, description="Name of the model in requests (`model`).")
    source: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        pattern=r"^[^-\s]\S*$",
        description="What vLLM loads: a folder in the pod (of one of pod.volumes, say), or a repository. Default: the name.",
    )
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


_EMBEDDED_NEEDS_POOL = "gpuKVCache is required for type Embedded, whose device pool is a part of the pod's memory"
_EMBEDDED_HAS_NO_VLLM = "vllm must be left out for type Embedded"
_EMBEDDED_HAS_NO_SOURCE = "model.source must be left out for type Embedded, which makes its own weights"
_EMBEDDED_HAS_NO_OFF = "hiSparse.mode Off is for type VLLM: the embedded engine has no other mode than On"
_EMBEDDED_HAS_OFFLOAD = "offload.enabled false is for type VLLM: the embedded engine always has an offload tier"
_OFF_HAS_NO_POOL = "hiSparse.hostPoolGiB must be left out when hiSparse.mode is Off: there is no host pool then"
_VLLM_NEEDS_VLLM = "vllm is required for type VLLM: at least vllm.gpu, which decides the KV row format"
_VLLM_GPUS_FOLLOW = "gpus must be left out for type VLLM: it is vllm.tensorParallelSize x vllm.dataParallelSize"


class Engine(SpecModel):
    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule("self.type != 'Embedded' || has(self.gpuKVCache)", _EMBEDDED_NEEDS_POOL),
                rule("self.type != 'Embedded' || !has(self.vllm)", _EMBEDDED_HAS_NO_VLLM),
                rule("self.type != 'VLLM' || has(self.vllm)", _VLLM_NEEDS_VLLM),
                rule("self.type != 'VLLM' || !has(self.gpus) || self.gpus == 0", _VLLM_GPUS_FOLLOW),
            ]
        }
    )

    type: EngineType = Field(description="Engine that serves the model. VLLM, or Embedded: the project's own, on a CPU.")
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
    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule("self.mode != 'Off' || !has(self.hostPoolGiB)", _OFF_HAS_NO_POOL),
            ]
        }
    )

    mode: Mode = Field(
        default=Mode.ON,
        description="On: with Hybrid HiSparse. Off: the same engine with ordinary offloading only, as the baseline of a"
        " comparison, or for a model that HiSparse cannot serve. Write it in quotes: YAML takes the bare words for booleans.",
    )
    # A number as in vLLM, whose option of the same name it becomes; GiB = 2^30 bytes.
    host_pool_gib: float | None = Field(
        default=None,
        alias="hostPoolGiB",
        gt=0,
        le=1 << 20,
        description="Host pool in GiB, for KV that the device pool cannot hold: of each data-parallel replica, as in vLLM."
        " Default: tuned from node memory.",
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _is_quoted(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError('write "On" or "Off" in quotes: YAML takes the bare word for a boolean')  # noqa: TRY004 - pydantic's way
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.mode is Mode.OFF and self.host_pool_gib is not None:
            raise ValueError(_OFF_HAS_NO_POOL)
        return self


class Offload(SpecModel):
    cpu_bytes_to_use: Quantity | None = Field(
        default=None,
        description="Host memory for KV of cached prefixes, of each data-parallel replica, as in vLLM. With HiSparse it holds"
        " indexer keys; default: of as many tokens as the host pool holds. Without: all KV; default: what nodes have left.",
    )
    enabled: bool = Field(default=True, description="Whether there is an offload tier. Embedded engines always have one.")


class HostMemory(SpecModel):
    max: Quantity | None = Field(
        default=None,
        description="Most memory that one pod may request. Default: its share of what nodes have left.",
    )


class HiSparseDeploymentSpec(SpecModel):
    """What is served, and within which bounds."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule("self.engine.type != 'Embedded' || !has(self.model.source)", _EMBEDDED_HAS_NO_SOURCE),
                rule("self.engine.type != 'Embedded' || self.hiSparse.mode == 'On'", _EMBEDDED_HAS_NO_OFF),
                rule("self.engine.type != 'Embedded' || self.offload.enabled", _EMBEDDED_HAS_OFFLOAD),
            ]
        }
    )

    replicas: int = Field(default=1, ge=0, le=256, description="Number of engine pods.")
    model: Model = Field(description="The model that is served.")
    engine: Engine = Field(description="The engine that serves it, and the resources of one pod.")
    hi_sparse: HiSparse = Field(default=HiSparse(), description="The host pool of Hybrid HiSparse.")
    offload: Offload = Field(default=Offload(), description="The offload tier: of the indexer KV, or of all KV without HiSparse.")
    host_memory: HostMemory = Field(default=HostMemory(), description="Bounds of the memory plan.")
    node_selector: dict[str, LabelValue] = Field(
        default={}, max_length=32, description="Labels that a node must carry to take part in sizing and to run a pod."
    )
    tolerations: list[Toleration] = Field(default=[], max_length=16, description="Taints that the pods tolerate.")
    pod: Pod = Field(default=Pod(), description="What the pods get beside the plan.")

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.engine.type is EngineType.EMBEDDED and self.model.source is not None:
            raise ValueError(_EMBEDDED_HAS_NO_SOURCE)
        if self.engine.type is EngineType.EMBEDDED and self.hi_sparse.mode is Mode.OFF:
            raise ValueError(_EMBEDDED_HAS_NO_OFF)
        if self.engine.type is EngineType.EMBEDDED and not self.offload.enabled:
            raise ValueError(_EMBEDDED_HAS_OFFLOAD)
        return self
