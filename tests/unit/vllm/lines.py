"""Command lines for the tests: a valid one, and ways to change it."""

import json
from typing import Any

from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.geometry import complete_config, vllm_version
from hisparse_runtime.vllm.command_line.options import OptionTable, option_table
from hisparse_runtime.vllm.command_line.words import CommandLine, read_command_line
from hisparse_runtime.vllm.explain.explanation import Explanation, explain
from hisparse_runtime.vllm.explain.knowledge import Knowledge

GIB = 1 << 30
HISPARSE = {"kv_connector": "HiSparseConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"host_pool_gib": 384}}
OFFLOADING = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 128 * GIB},
}
NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
SERVE = ("vllm", "serve", "zai-org/GLM-5.3", "-tp", "8", "--max-model-len", "131072", "--kv-cache-dtype", "fp8")


def table(version: str = "0.33") -> OptionTable:
    return option_table(vllm_version(version))


def read(*words: str, version: str = "0.33") -> CommandLine:
    return read_command_line(words, table(version))


def transfer(config: Any) -> tuple[str, str]:
    return "--kv-transfer-config", json.dumps(config)


def multi(*children: Any) -> dict[str, Any]:
    return {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"connectors": list(children)}}


def glm(version: str = "0.33", *, kind: str | None = "H200", kv_gib: float | None = 17.8) -> Knowledge:
    """GLM-5.3, and a GPU with that much memory for KV."""
    return Knowledge(
        version=vllm_version(version),
        config=complete_config("glm-5.3", {})[0],
        gpu=None if kind is None else gpu(kind),
        gpu_kv_bytes=None if kv_gib is None else int(kv_gib * GIB),
    )


def explained(*options: str, version: str = "0.33", environment: tuple[str, ...] = (), **known: Any) -> Explanation:
    """SERVE with these options more."""
    return explain((*environment, *SERVE, *options), glm(version, **known))


def codes(explanation: Explanation) -> list[str]:
    return [rejection.code for rejection in explanation.rejections]


def working_transfer(explanation: Explanation) -> Any:
    """What the command that works has for --kv-transfer-config."""
    assert explanation.working is not None
    return json.loads(explanation.working[explanation.working.index("--kv-transfer-config") + 1])
