"""Objects, plans and observations for tests; each takes what its test is about and fills in the rest."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hisparse_operator.api import HiSparseDeployment, HiSparseDeploymentStatus
from hisparse_operator.cluster.slim import DeploymentFacts, PodFacts, Trouble
from hisparse_operator.conditions import Observation
from hisparse_operator.planning import Infeasible, NodeFacts, Plan, PodRequest
from hisparse_operator.resources import EngineImages
from hisparse_operator.telemetry import ProgressReport, ResidencyReport, Sample

MIB, GIB = 1 << 20, 1 << 30

IMAGES = EngineImages(embedded="engine:1", vllm="vllm:{version}")

NOW = datetime(2027, 3, 4, 5, 6, 7, tzinfo=UTC)

MODEL_CONFIG = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "index_topk": 64,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "vocab_size": 512,
    "intermediate_size": 128,
    "max_position_embeddings": 8192,
    "rope_theta": 10000,
    "rms_norm_eps": 1e-6,
}

# 8,192 pages of 16 tokens: 12 KiB of KV each in the host pool, 4 KiB of indexer keys each in the offload tier.
PLAN = Plan(
    node="big",
    eligible_nodes=2,
    pods_per_node=1,
    host_pool_bytes=96 * MIB,
    host_pool_gib=0.09375,
    cpu_bytes_to_use=32 * MIB,
    gpu_kv_bytes=8 * MIB,
    device_buffer_rows=128,
    max_model_len=4096,
    shm_bytes=192 * MIB,
    memory_bytes=776 * MIB,
    host_pool_tokens=131072,
    device_pool_tokens=5456,
    startup_seconds=120,
    termination_seconds=45,
    arithmetic=("node big: 1.00 GiB", "96 MiB + 32 MiB + 64 MiB = 192 MiB of shared memory"),
)


def body(
    *,
    name: str = "agents",
    uid: str = "uid-1",
    generation: int = 1,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A HiSparseDeployment in namespace `shop`, as the API server gives it."""
    return {
        "apiVersion": "hisparse.dev/v1alpha1",
        "kind": "HiSparseDeployment",
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "generation": generation, **(metadata or {})},
        "spec": {
            "replicas": 1,
            "model": {"name": "tiny-sparse-mla", "config": MODEL_CONFIG},
            "engine": {
                "type": "Embedded",
                "maxModelLen": 4096,
                "maxNumSeqs": 16,
                "maxNumBatchedTokens": 256,
                "gpuKVCache": "8Mi",
                "cpu": "500m",
                "gpus": 1,
                **(engine or {}),
            },
            "hostMemory": {"max": "1Gi"},
            **spec,
        },
        **({"status": dict(status)} if status else {}),
    }


def owner(**fields: Any) -> HiSparseDeployment:
    return HiSparseDeployment.parse(body(**fields))


def with_status(before: HiSparseDeployment, status: HiSparseDeploymentStatus) -> HiSparseDeployment:
    """The object once its status was written and came back through the API server."""
    written = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return HiSparseDeployment.parse(
        {
            "metadata": {"name": before.name, "namespace": before.namespace, "uid": before.uid, "generation": before.generation},
            "spec": before.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
            "status": written,
        }
    )


def node(*, name: str = "big", memory_bytes: int = 8 * GIB, gpus: int = 8) -> NodeFacts:
    return NodeFacts(name, True, False, (), (), memory_bytes, gpus)  # noqa: FBT003 - ready, and not cordoned


def pod(
    *,
    name: str = "agents-1",
    owner_key: str | None = "shop/agents",
    node_name: str | None = "big",
    ready: bool = True,
    deleting: bool = False,
    unschedulable: str = "",
    trouble: Trouble | None = None,
    restarts: int = 0,
    memory_bytes: int = 776 * MIB,
    report_port: int = 8000,
) -> PodFacts:
    request = PodRequest(node_name, memory_bytes, 1, owner_key) if node_name else None
    return PodFacts(
        request,
        owner_key,
        name,
        "10.0.0.7",
        ready=ready,
        deleting=deleting,
        unschedulable=unschedulable,
        trouble=trouble,
        restarts=restarts,
        report_port=report_port,
    )


def deployment(**fields: Any) -> DeploymentFacts:
    """One replica, rolled out and ready."""
    rolled_out: dict[str, Any] = {
        "owner_uid": "uid-1",
        "generation": 1,
        "observed_generation": 1,
        "replicas": 1,
        "updated": 1,
        "ready": 1,
        "rendered_hash": "hash",
        "plan": "",
    }
    return DeploymentFacts(**{**rolled_out, **fields})


def report_values() -> dict[str, Any]:
    """What an engine pod answers, all keys of the contract."""
    return {
        "schema": "hisparse.dev/residency/v1",
        "engine": {"type": "Embedded", "version": "0.1.0", "model": "tiny-sparse-mla", "uptime_seconds": 1.5},
        "requests": {"running": 6, "waiting": 4, "full": 3, "mixed": 2, "none": 1, "finished": 42},
        "pages": {"dirty": 10, "pending": 20, "clean_pinned": 30, "unpinned": 40, "host_only": 50},
        "host_pool": {"capacity_bytes": 96 * MIB, "used_bytes": 24 * MIB, "cached_bytes": 3 * MIB},
        "device_pool": {"capacity_bytes": 8 * MIB, "used_bytes": 6 * MIB},
        "offload": {"capacity_bytes": 32 * MIB, "used_bytes": 8 * MIB},
        "hot": {"regions_in_use": 3, "hits": 900, "misses": 100, "host_to_device_bytes": 6400},
        "mirror_bytes": 123,
    }


def report(**parts: Mapping[str, Any]) -> ResidencyReport:
    """A report with some numbers of some parts replaced: `report(host_pool={"used_bytes": 0})`."""
    values = report_values()
    for name, numbers in parts.items():
        values[name] = {**values[name], **numbers}
    return ResidencyReport.model_validate(values)


def sample(*, age_seconds: float = 0.0, error: str = "", answer: ResidencyReport | None = None, lost: bool = False) -> Sample:
    """A sample taken `age_seconds` before NOW; `lost` is one of a pod that never answered."""
    return Sample(None if lost else answer or report(), error, NOW - timedelta(seconds=age_seconds))


def observation(
    *,
    of: HiSparseDeployment | None = None,
    plan: Plan | None = PLAN,
    problem: Infeasible | None = None,
    apply_error: str = "",
    deployed: DeploymentFacts | None = None,
    pods: Sequence[PodFacts] = (),
    samples: Mapping[str, Sample | None] | None = None,
    starting: Mapping[str, ProgressReport] | None = None,
    seconds_later: float = 0.0,
) -> Observation:
    """What is seen at NOW, or some seconds later."""
    return Observation(
        owner=of or owner(),
        plan=None if problem else plan,
        problem=problem,
        apply_error=apply_error,
        rendered_hash="" if problem else "hash",
        deployment=deployed,
        pods=pods,
        samples=samples or {},
        starting=starting or {},
        stale_after_seconds=15.0,
        now=NOW + timedelta(seconds=seconds_later),
    )
