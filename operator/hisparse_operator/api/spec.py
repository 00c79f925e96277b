"""`spec` of a HiSparseDeployment: what a person writes.

Field descriptions become the text of `kubectl explain hsd`, constraints become the CRD's schema and CEL rules.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from hisparse_operator.api.quantity import Quantity


class SpecModel(BaseModel):
    """camelCase outside, snake_case inside, nothing unknown, nothing changed after parsing."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class EngineType(StrEnum):
    """Which engine serves the model."""

    EMBEDDED = "Embedded"


class Model(SpecModel):
    name: str = Field(min_length=1, max_length=253, description="Name of the model in requests (`model`).")
    config: dict[str, Any] = Field(
        description="The model's config.json as an object. Its layers, row sizes and index top-K decide every memory size.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class Engine(SpecModel):
    type: EngineType = Field(description="Engine that serves the model. Embedded: the project's own engine on a CPU.")
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        pattern=r"^\S+$",
        description="Engine image. Default: the operator's own choice, set at its installation.",
    )
    max_model_len: int = Field(ge=1, le=1 << 24, description="Longest request, prompt and output together, in tokens.")
    max_num_seqs: int = Field(default=16, ge=1, le=4096, description="Most requests that run at the same time.")
    max_num_batched_tokens: int = Field(default=512, ge=1, le=1 << 20, description="Most tokens that one engine step processes.")
    gpu_kv_cache: Quantity = Field(
        alias="gpuKVCache",
        description="Size of the device block pool, home of resident pages, hot regions and indexer pages.",
    )
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
