"""`status` of a HiSparseDeployment: what the operator reports. Written by server-side apply on `/status`, whole each time."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class StatusModel(BaseModel):
    """camelCase outside, snake_case inside. Unknown fields are ignored when a newer operator's status is read back."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Condition(StatusModel):
    """One aspect of the object's state."""

    type: str = Field(min_length=1, max_length=316, description="What the condition speaks of.")
    status: str = Field(pattern="^(True|False|Unknown)$")
    reason: str = Field(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    message: str = Field(max_length=32768)
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    observed_generation: int = Field(ge=0)


class ConcurrencyStatus(StatusModel):
    """Requests of maxModelLen tokens that one engine replica runs side by side."""

    ordinary: str = Field(description="Without HiSparse.")
    steady: str = Field(description="With HiSparse, once running requests read from the host.")
    host: str = Field(description="That the host pool holds.")
    limited_by: str = Field(description="What ends the steady number: gpu, host or max_num_seqs.")


class PlanStatus(StatusModel):
    """The memory plan of one pod. A pod's plan is settled when its spec is first planned and kept until the spec changes."""

    node: str = Field(description="The eligible node with the least memory left: it decided the sizes.")
    eligible_nodes: int = Field(description="Nodes that may run a pod.")
    host_pool_bytes: int = Field(description="Host pool of one engine replica, of which a pod has dataParallelSize.")
    cpu_bytes_to_use: int = Field(description="Offload tier of one engine replica.")
    shm_bytes: int = Field(description="Size of /dev/shm of one pod: shared host pools, offload tiers and slack.")
    memory_bytes: int = Field(description="Memory request and limit of one pod.")
    host_pool_tokens: int = Field(description="Tokens whose KV the host pool holds.")
    device_pool_tokens: int | None = Field(
        default=None, description="Tokens whose KV the device pool holds when everything is resident."
    )
    startup_seconds: int | None = Field(
        default=None, description="Time that a pod may take to start, from the bytes it has to move."
    )
    termination_seconds: int | None = Field(default=None, description="Time that a pod may take to stop.")
    concurrency: ConcurrencyStatus | None = None
    warnings: list[str] = Field(default=[], description="What is accepted and may not be what was wanted.")
    arithmetic: list[str] = Field(description="How the numbers came about, a step a line.")


class RequestResidency(StatusModel):
    """Requests by where their KV lives."""

    full: int = Field(description="Running requests with every page on the device.")
    mixed: int = Field(description="Running requests with some pages on the device and some on the host only.")
    none: int = Field(description="Running requests whose whole finished prefix is on the host only.")
    waiting: int = Field(description="Requests that are not admitted yet.")


class PageStates(StatusModel):
    """Pages of running requests by state."""

    dirty: int
    pending: int
    clean_pinned: int
    unpinned: int
    host_only: int


class PoolUse(StatusModel):
    """One memory pool, summed over the pods."""

    capacity_bytes: int = Field(
        description="0: there is none, or its size is not known, as of the device pool of a model without sparse MLA on a GPU."
    )
    used_bytes: int
    used_percent: int = Field(description="Rounded; what running requests hold. Cached pages that can be dropped count as free.")


class HotRegions(StatusModel):
    """How well the hot regions serve the indexer's choices."""

    hits: int = Field(description="Rows found in hot regions since the pods started.")
    misses: int = Field(description="Rows copied from the host since the pods started.")
    hit_percent: int | None = Field(default=None, description="Hits of all look-ups, rounded; absent before the first look-up.")


class Residency(StatusModel):
    """Sums over the pods that answered."""

    observed_at: str = Field(json_schema_extra={"format": "date-time"})
    pods_reporting: int
    requests: RequestResidency
    pages: PageStates
    host_pool: PoolUse
    device_pool: PoolUse
    offload: PoolUse
    hot: HotRegions


class Summary(StatusModel):
    """Texts of `kubectl get`, derived from the other fields."""

    replicas: str
    host_pool: str | None = None
    used: str | None = None
    hit: str | None = None
    offload: str | None = None


class HiSparseDeploymentStatus(StatusModel):
    """What the operator and the pods report."""

    observed_generation: int | None = Field(default=None, description="Generation of the spec that this status speaks of.")
    replicas: int | None = Field(default=None, description="Pods that exist.")
    ready_replicas: int | None = Field(default=None, description="Pods that serve.")
    updated_replicas: int | None = Field(default=None, description="Pods of the current template.")
    selector: str | None = Field(default=None, description="Label selector of the pods, for autoscalers.")
    endpoint: str | None = Field(default=None, description="Where requests go inside of the cluster.")
    version: str | None = Field(default=None, description="Engine version that the pods report.")
    plan: PlanStatus | None = None
    residency: Residency | None = None
    summary: Summary | None = None
    conditions: list[Condition] = Field(
        default=[], max_length=16, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
