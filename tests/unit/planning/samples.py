"""Specs and nodes of the planning tests: small, with whatever a test changes given by keyword."""

from collections.abc import Mapping, Sequence
from typing import Any

from hisparse_operator.api import HiSparseDeploymentSpec
from hisparse_operator.planning import NodeFacts, PodRequest, Taint

MIB = 1 << 20
GIB = 1 << 30
# A page has 4 layers x 16 tokens x 48 floats = 12 KiB, an indexer page 4 x 16 x 16 floats = 4 KiB.
MODEL_CONFIG = {
    "num_hidden_layers": 4,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "index_head_dim": 16,
    "index_topk": 64,
    "max_position_embeddings": 8192,
}
# What the smallest pod of the sample spec needs: 64 + 5 MiB of shared memory, 192 working set, 8 device pool, 64 headroom.
SMALLEST_POD_BYTES = 333 * MIB


def sample_spec(
    *,
    model_config: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
    host_pool_gib: float | None = None,
    cpu_bytes_to_use: int | str | None = None,
    host_memory_max: int | str | None = None,
    **fields: Any,
) -> HiSparseDeploymentSpec:
    return HiSparseDeploymentSpec.model_validate(
        {
            "model": {"name": "tiny", "config": MODEL_CONFIG if model_config is None else model_config},
            "engine": {
                "type": "Embedded",
                "maxModelLen": 4096,
                "maxNumBatchedTokens": 256,
                "gpuKVCache": "8Mi",
                **(engine or {}),
            },
            "hiSparse": {"hostPoolGiB": host_pool_gib},
            "offload": {"cpuBytesToUse": cpu_bytes_to_use},
            "hostMemory": {"max": host_memory_max},
            **fields,
        }
    )


def sample_node(
    name: str = "node-a",
    *,
    memory_bytes: int = 16 * GIB,
    gpus: int = 0,
    ready: bool = True,
    unschedulable: bool = False,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
) -> NodeFacts:
    return NodeFacts(
        name=name,
        ready=ready,
        unschedulable=unschedulable,
        labels=tuple((labels or {}).items()),
        taints=tuple(taints),
        allocatable_memory_bytes=memory_bytes,
        allocatable_gpus=gpus,
    )


def sample_pod(node: str = "node-a", *, memory_bytes: int, deployment: str | None = None) -> PodRequest:
    return PodRequest(node=node, memory_bytes=memory_bytes, gpus=0, deployment=deployment)
