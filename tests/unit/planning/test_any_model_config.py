"""config.json is anybody's: whatever stands in its fields, there is a plan or a refusal, and never another exception."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from hisparse_operator.planning import Infeasible, plan
from hisparse_runtime.geometry import complete_config
from tests.unit.planning.samples import GIB, MODEL_CONFIG, sample_node, sample_spec

GLM, _ = complete_config("glm-5.3", {})
FIELDS = [*GLM, "index_kpool", "index_topk_pattern", "layer_types", "linear_attn_config", "text_config", "dtype"]
_NUMBERS = st.sampled_from([0, -1, 1, 3, 7, 64, 65, 1000, 1001, 1 << 24, (1 << 24) + 1, 10**9, 1.5, float("nan"), 1e300])
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.sampled_from(["", "4", "FSSF", "S" * 78, "linear_attention", "bfloat16"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["quant_method", "a"]), inner, max_size=2),
    max_leaves=4,
)
_CHANGES = st.dictionaries(st.sampled_from(FIELDS), _VALUES, min_size=1, max_size=3)
NODE = sample_node(memory_bytes=4000 * GIB, gpus=8)


@given(
    changes=_CHANGES, gpu=st.sampled_from(["H200", "B200", "RTX PRO 6000"]), kv_memory=st.none() | st.sampled_from(["1", "20Gi"])
)
@example(changes={"layer_types": 1.5}, gpu="H200", kv_memory="20Gi")
@example(changes={"index_kpool": 65}, gpu="H200", kv_memory="20Gi")
def test_a_vllm_engine_with_any_config_is_planned_or_refused(changes: dict[str, Any], gpu: str, kv_memory: str | None) -> None:
    engine = {
        "type": "VLLM",
        "maxModelLen": 8192,
        "maxNumBatchedTokens": 8192,
        "gpuKVCache": kv_memory,
        "vllm": {"gpu": gpu, "tensorParallelSize": 8, "kvCacheDtype": "fp8", "numSpeculativeTokens": 1},
    }
    try:
        made = plan(sample_spec(model_config={**GLM, **changes}, engine=engine), deployment="team/any", nodes=[NODE], pods=[])
    except Infeasible:
        return
    assert made.memory_bytes <= NODE.allocatable_memory_bytes


@given(changes=_CHANGES)
def test_an_embedded_engine_with_any_config_is_planned_or_refused(changes: dict[str, Any]) -> None:
    try:
        made = plan(sample_spec(model_config={**MODEL_CONFIG, **changes}), deployment="team/any", nodes=[NODE], pods=[])
    except Infeasible:
        return
    assert made.memory_bytes <= NODE.allocatable_memory_bytes
