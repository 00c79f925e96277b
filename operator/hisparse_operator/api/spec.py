"""`spec` of a HiSparseDeployment: what a person writes.

Field descriptions become the text of `kubectl explain hsd`, constraints become the CRD's schema and CEL rules.
"""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from hisparse_operator.api.quantity import Quantity


class SpecModel(BaseModel):
    """camelCase outside, snake_case inside, nothing unknown, nothing changed after parsing."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class EngineType(StrEnum):
    """Which engine serves the model."""

    EMBEDDED = "Embedded"


class Model(SpecModel):
    name: str = Field(min_length=1, max_length=253, description="Name under which the model is served: the `model` field of requests.")
    config: dict[str, Any] = Field(
        description="The model's config.json, as an object. Its geometry (layers, row sizes, index top-K) decides every memory size.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class Engine(SpecModel):
    type: EngineType = Field(description="Engine that serves the model. Embedded: the project's own engine on a CPU.")
    image: str | None = Field(default=None, min_length=1, max_length=500, description="Engine image. Default: the image that the operator was installed with.")
    max_model_len: int = Field(ge=1, le=1 << 24, description="Longest context of one request, prompt and output together, in tokens.")
    max_num_seqs: int = Field(default=16, ge=1, le=4096, description="Most requests that run at the same time.")
    max_num_batched_tokens: int = Field(default=512, ge=1, le=1 << 20, description="Most tokens that one engine step processes.")
    gpu_kv_cache: Quantity = Field(description="Size of the device block pool, in which resident pages, hot regions and indexer pages live.")
    device_buffer_size: int | None = Field(
        default=None, ge=1, le=32768, description="Rows of one request's hot region. Default: 2 x index_topk of the model."
    )
    cpu: Quantity = Field(default="1", description="CPU request of one pod.")
    gpus: int = Field(default=0, ge=0, le=64, description="GPUs (nvidia.com/gpu) of one pod.")


class HiSparse(SpecModel):
    # A number as in vLLM, whose option of the same name it becomes; GiB = 2^30 bytes.
    host_pool_gib: float | None = Field(
        default=None,
        alias="hostPoolGiB",
        gt=0,
        le=1 << 20,
        description="Host pool of one pod in GiB: where KV pages live that the device pool cannot hold. Default: tuned from node memory.",
    )


class Offload(SpecModel):
    cpu_bytes_to_use: Quantity | None = Field(
        default=None, description="Host memory for the indexer KV of cached prefixes, per pod. Default: tuned, so that it holds as many tokens as the host pool."
    )


class HostMemory(SpecModel):
    max: Quantity | None = Field(default=None, description="Most memory that one pod may request. Default: its share of what the smallest eligible node has left.")


class Toleration(SpecModel):
    key: str | None = Field(default=None, max_length=316)
    operator: str | None = Field(default=None, pattern="^(Exists|Equal)$")
    value: str | None = Field(default=None, max_length=63)
    effect: str | None = Field(default=None, pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$")
    toleration_seconds: int | None = None


class HiSparseDeploymentSpec(SpecModel):
    replicas: int = Field(default=1, ge=0, le=256, description="Number of engine pods.")
    model: Model
    engine: Engine
    hi_sparse: HiSparse = Field(default=HiSparse(), description="The host pool of Hybrid HiSparse.")
    offload: Offload = Field(default=Offload(), description="The offload tier of the indexer KV.")
    host_memory: HostMemory = Field(default=HostMemory(), description="Bounds of the memory plan.")
    node_selector: dict[str, str] = Field(default={}, description="Labels that a node must carry to take part in sizing and to run a pod.")
    tolerations: list[Toleration] = Field(default=[], max_length=16, description="Taints that the pods tolerate.")
