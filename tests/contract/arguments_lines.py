"""The parts of `vllm serve` command lines: models, bases, connectors.

A case is a JSON object; `MODEL` in its words stands for a folder with the config.json of its model.
"""

import json
from typing import Any

from tests.contract.model_configs import DEEPSEEK_V3_2, GLM_5_1, GLM_5_3, GLM_5_3_FLASH, GLM_5_3_FLASH_TEXT, Config

Case = dict[str, Any]
Json = dict[str, Any]

GIB = 2**30
MODEL = "MODEL"
LLAMA: Config = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
MODELS: dict[str, Config] = {
    "glm-5.3": GLM_5_3,
    "glm-5.1": GLM_5_1,
    "deepseek-v3.2": DEEPSEEK_V3_2,
    "two-mtp-layers": GLM_5_3 | {"num_nextn_predict_layers": 2},
    "no-mtp-layer": GLM_5_3 | {"num_nextn_predict_layers": 0},
    "mtp-not-said": {key: value for key, value in GLM_5_3.items() if key != "num_nextn_predict_layers"},
    "llama": LLAMA,
    "glm-5.3-flash": GLM_5_3_FLASH,
    "glm-5.3-flash-text": GLM_5_3_FLASH_TEXT,
}
BASE = ("-tp", "8", "--max-model-len", "131072", "--max-num-batched-tokens", "8192", "--kv-cache-dtype", "fp8")
SMALL = ("--max-model-len", "2048")
PIPELINE = ("-tp", "4", *BASE[2:])
MTP = ("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}')
PUBLISHED = (
    *(
        "--served-model-name",
        "glm-agentx",
        "--trust-remote-code",
        "--host",
        "0.0.0.0",
        "--port",
        "8000",
        "--tensor-parallel-size",
        "8",
    ),
    *("--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.92", "--max-model-len", "142000"),
    *("--max-num-batched-tokens", "32768", "--max-num-seqs", "256", "--enable-prefix-caching"),
    *("--attention-config", '{"hisparse_config":{"host_pool_gib":384}}', "--kv-transfer-config"),
    (
        '{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":'
        '{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":137438953472}}'
    ),
    *("--speculative-config", '{"method":"mtp","num_speculative_tokens":3}', "--enable-auto-tool-choice"),
    *("--tool-call-parser", "glm47", "--reasoning-parser", "glm45"),
)


def case(
    name: str,
    *words: str,
    base: tuple[str, ...] = BASE,
    model: str = "glm-5.3",
    gpu: str = "H200",
    gpu_kv_bytes: int = int(17.8 * GIB),
    environment: dict[str, str] | None = None,
) -> Case:
    return {
        "id": name,
        "words": ["serve", MODEL, *base, *words],
        "environment": environment or {},
        "gpu": gpu,
        "num_gpus": 8,
        "gpu_kv_bytes": gpu_kv_bytes,
        "model": model,
    }


def connector(name: str, **extra: Any) -> Json:
    return {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}


def hisparse(gib: Any = 384, **extra: Any) -> Json:
    return connector("HiSparseConnector", host_pool_gib=gib, **extra)


def offloading(size_bytes: Any = 128 * GIB, **extra: Any) -> Json:
    return connector("OffloadingConnector", **{"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": size_bytes} | extra)


def multi(*children: Any) -> Json:
    return connector("MultiConnector", connectors=list(children))


NIXL = connector("NixlConnector")
NO_POOL = connector("HiSparseConnector")


def transfer(config: Any) -> tuple[str, str]:
    return "--kv-transfer-config", json.dumps(config)


def attention(**fields: Any) -> tuple[str, str]:
    return "--attention-config", json.dumps({"hisparse_config": fields})


def without(config: Json, key: str) -> Json:
    return {name: value for name, value in config.items() if name != key}


ON = transfer(hisparse())
