"""Weights counted from config.json, against totals that were published and one that was measured.

Where a total was published in bytes it has to come out to the byte; else to its last digit, unless a test says otherwise.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hisparse_runtime.capacity.weights import WeightBytes, read_weight_bytes
from hisparse_runtime.geometry import ModelConfigError

GIB = 1 << 30

GLM_53: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    "torch_dtype": "bfloat16",
    "hidden_size": 6_144,
    "intermediate_size": 12_288,
    "moe_intermediate_size": 2_048,
    "num_hidden_layers": 78,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "num_attention_heads": 64,
    "q_lora_rank": 2_048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk_freq": 4,
    "index_skip_topk_offset": 3,
    "num_nextn_predict_layers": 1,
    "vocab_size": 154_880,
    "tie_word_embeddings": False,
}
# Every layer of GLM-5.1 has an indexer.
GLM_51 = {key: value for key, value in GLM_53.items() if not key.startswith(("index_topk", "index_skip"))}
DEEPSEEK_V32 = {
    **GLM_51,
    "model_type": "deepseek_v32",
    "hidden_size": 7_168,
    "intermediate_size": 18_432,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "q_lora_rank": 1_536,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "index_n_heads": 64,
    "vocab_size": 129_280,
}
FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    # an excerpt; the indexers_proj of the real list names no tensor
    "modules_to_not_convert": ["lm_head", "model.layers.3.mlp.gate", "model.layers.0.self_attn.indexers_proj"],
}
# NVIDIA quantises routed experts only, and none of the MTP layer's.
NVFP4 = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "ignore": [
        *("lm_head", "model.embed_tokens", "model.layers.0*", "model.layers.1.*", "model.layers.2.*", "model.layers.78*"),
        *(f"model.layers.{layer}.self_attn*" for layer in range(3, 78)),
        *(f"model.layers.{layer}.mlp.shared_experts*" for layer in range(3, 78)),
    ],
}
GLM_53_FP8 = {**GLM_53, "quantization_config": FP8}


def index_of(total_bytes: float, *names: str) -> dict[str, Any]:
    return {"metadata": {"total_size": total_bytes}, "weight_map": dict.fromkeys(names, "model-00001-of-00282.safetensors")}


def test_sixteen_bit_checkpoint_to_the_byte() -> None:
    assert read_weight_bytes(GLM_53, is_speculative=True).total_bytes == 1_506_659_919_872


def test_five_layers_of_it_to_the_byte() -> None:
    # published for tests: three dense layers and two with experts, indexers in 0, 1 and 2, no MTP
    cut = {**GLM_53, "num_hidden_layers": 5, "num_nextn_predict_layers": 0}
    assert read_weight_bytes(cut, is_speculative=True).total_bytes == 45_683_868_160


def test_eight_bit_checkpoint_divides_as_the_published_calculator_says() -> None:
    weights = read_weight_bytes(GLM_53_FP8, is_speculative=True)
    assert round(weights.shared_bytes / GIB, 3) == 19.556
    assert round(weights.expert_bytes / GIB, 3) == 684.167
    assert round(weights.total_bytes / GIB, 1) == 703.7
    # 76 x 256 x 3 matrices of 6,144 x 2,048: a byte each, and 4 bytes for each block of 128 x 128
    assert weights.expert_bytes == 76 * 256 * 3 * 6_144 * 2_048 * (1 + 4 / 128**2)


def test_four_bit_checkpoint() -> None:
    weights = read_weight_bytes({**GLM_53, "quantization_config": NVFP4}, is_speculative=True)
    assert round(weights.total_bytes / GIB, 1) == 432.9
    packed = 75 * 256 * 3 * 6_144 * 2_048
    # half a byte and a sixteenth for the scale of 16, two scales of 4 bytes a matrix; the MTP layer's experts in 16 bits
    assert weights.expert_bytes == packed * 9 // 16 + 75 * 256 * 3 * 8 + packed // 75 * 2


def test_deepseek_within_a_hundredth_of_its_rounded_total() -> None:
    weights = read_weight_bytes({**DEEPSEEK_V32, "quantization_config": FP8}, is_speculative=True)
    assert weights.total_bytes == pytest.approx(690e9, rel=0.01)
    # its MTP layer repeats embedding and head, which GPUs share with the model: with them 0.1 % are missing
    assert weights.total_bytes + 2 * 2 * 129_280 * 7_168 == pytest.approx(690e9, rel=0.001)


def test_a_gpu_of_eight_within_a_hundredth_of_what_vllm_logged() -> None:
    # "Model loading took 89.34 GiB memory": GLM-5.1-FP8, 8 x H200, TP8, no speculation. An even split would say 86.9.
    weights = read_weight_bytes({**GLM_51, "quantization_config": FP8}, is_speculative=False)
    on_gpu = weights.per_gpu_bytes(tensor_parallel_size=8, data_parallel_size=1, expert_parallel=False)
    assert on_gpu / GIB == pytest.approx(89.34, rel=0.01)
    assert weights.total_bytes / 8 / GIB == pytest.approx(86.9, abs=0.1)


def test_the_mtp_layer_is_loaded_with_speculation_only() -> None:
    with_mtp, without = (read_weight_bytes(GLM_53, is_speculative=is_on) for is_on in (True, False))
    # attention 165,019,648, an indexer 9,371,648, experts and router 257 x 37,748,736 + 1,572,864, eh_proj 75,497,472; norms:
    # two of the layer, two of attention, the indexer's with a bias, three of MTP; a 32-bit bias for 256 experts
    matrices = 165_019_648 + 9_371_648 + 257 * 37_748_736 + 1_572_864 + 75_497_472
    norms = 2 * 6_144 + 2_048 + 512 + 2 * 128 + 3 * 6_144
    assert with_mtp.total_bytes - without.total_bytes == 2 * (matrices + norms) + 4 * 256
    assert with_mtp.expert_bytes - without.expert_bytes == 2 * 256 * 37_748_736
    assert with_mtp.absorbed_bytes - without.absorbed_bytes == 2 * 64 * (192 + 256) * 512


def test_layers_that_share_an_indexer_have_none() -> None:
    all_lead, shared = (read_weight_bytes(config, is_speculative=False) for config in (GLM_51, GLM_53))
    spelled = read_weight_bytes({**GLM_51, "index_topk_pattern": "FFF" + "SSSF" * 18 + "SSS"}, is_speculative=False)
    assert all_lead.replicated_bytes - shared.replicated_bytes == 2 * 57 * (9_371_648 + 256)
    assert spelled == shared


def test_the_index_corrects_the_total_and_keeps_the_division() -> None:
    counted = read_weight_bytes(GLM_53_FP8, is_speculative=True)
    weights = read_weight_bytes(GLM_53_FP8, is_speculative=True, index=index_of(counted.total_bytes * 1.01 // 1))
    assert weights.total_bytes == pytest.approx(counted.total_bytes * 1.01, abs=8)
    assert weights.expert_bytes / weights.total_bytes == pytest.approx(684.167 / 703.723, rel=1e-5)
    assert weights.source == (
        "safetensors index: 710.76 GiB in all, divided by config.json: shapes, FP8 with scales of 128 x 128 blocks"
    )
    exact = read_weight_bytes(GLM_53, is_speculative=True, index=index_of(1_506_659_919_872))
    assert exact.total_bytes == 1_506_659_919_872


def test_what_the_index_has_and_no_gpu_loads_is_left_out() -> None:
    config = {**DEEPSEEK_V32, "quantization_config": FP8}
    repeated = ("model.layers.61.embed_tokens.weight", "model.layers.61.shared_head.head.weight")
    counted = {is_on: read_weight_bytes(config, is_speculative=is_on) for is_on in (True, False)}
    index = index_of(counted[True].total_bytes + 2 * 2 * 129_280 * 7_168, *repeated)
    for is_speculative, expected in counted.items():
        weights = read_weight_bytes(config, is_speculative=is_speculative, index=index)
        assert (weights.shared_bytes, weights.expert_bytes) == (expected.shared_bytes, expected.expert_bytes)


def test_formats_without_blocks_and_of_modelopt() -> None:
    plain = {**GLM_53, "quantization_config": {"quant_method": "fp8"}}
    modelopt = {
        **GLM_53,
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    }
    weights = read_weight_bytes(plain, is_speculative=False)
    assert weights.expert_bytes == 75 * 256 * 3 * (6_144 * 2_048 + 4)
    assert read_weight_bytes(modelopt, is_speculative=False) == weights


def test_newer_files_call_the_type_dtype() -> None:
    renamed = {**GLM_53, "torch_dtype": None, "dtype": "float32"}
    # but for the 32-bit bias of each router, all is twice as large
    twice = 2 * 1_506_659_919_872 - 76 * 256 * 4
    assert read_weight_bytes(renamed, is_speculative=True).total_bytes == twice


def test_an_ignored_module_is_not_its_neighbour() -> None:
    # the router is in 16 bits anyway; gate_proj is not what "mlp.gate" names
    ignoring = {**FP8, "modules_to_not_convert": [f"model.layers.{layer}.mlp.gate" for layer in range(79)]}
    named = read_weight_bytes({**GLM_53, "quantization_config": ignoring}, is_speculative=True)
    assert named == read_weight_bytes(GLM_53_FP8, is_speculative=True)


def test_who_holds_what() -> None:
    weights = WeightBytes(
        shared_bytes=1_000, expert_bytes=8_000, source="by hand", replicated_bytes=200, shared_expert_bytes=80, absorbed_bytes=40
    )

    def on_gpu(tp: int, dp: int, *, expert_parallel: bool) -> int:
        return weights.per_gpu_bytes(tensor_parallel_size=tp, data_parallel_size=dp, expert_parallel=expert_parallel)

    assert on_gpu(1, 1, expert_parallel=False) == 9_040
    assert on_gpu(4, 1, expert_parallel=True) == 200 + 840 // 4 + 2_000
    assert on_gpu(1, 4, expert_parallel=True) == 200 + 840 + 2_000
    # vLLM cuts experts over all GPUs without expert parallelism too
    assert on_gpu(4, 2, expert_parallel=False) == 200 + 840 // 4 + 1_000
    # with it, and with both kinds of ranks, each GPU has the whole shared expert
    assert on_gpu(4, 2, expert_parallel=True) == 280 + 760 // 4 + 1_000
    # a part of a byte is a byte
    assert on_gpu(3, 1, expert_parallel=False) == 200 + 280 + 2_667


@pytest.mark.parametrize("field", sorted(set(GLM_51) - {"moe_layer_freq", "num_nextn_predict_layers", "tie_word_embeddings"}))
def test_a_missing_field_is_named(field: str) -> None:
    config = {key: value for key, value in GLM_51.items() if key != field}
    with pytest.raises(ModelConfigError, match=field):
        read_weight_bytes(config, is_speculative=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "6144"}, "hidden_size must be a whole number from 1 to 16,777,216, got '6144'"),
        ({"hidden_size": True}, "hidden_size must be a whole number .*, got True"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be a whole number from 1 to 1,000, got 1000000000"),
        ({"torch_dtype": "int3"}, "torch_dtype must be one of bfloat16, float16, float32, got 'int3'"),
        ({"torch_dtype": ["bfloat16"]}, "torch_dtype must be one of"),
        ({"torch_dtype": None}, "torch_dtype must be one of .* got None"),
        ({"model_type": "glm5_next"}, "weights of model_type 'glm5_next' cannot be counted, known are glm_moe_dsa, deepseek_v32"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": ["*" * 201]}}, "each of at most 200 letters"),
        ({"index_topk_pattern": 7}, "index_topk_pattern must be a letter per layer"),
        ({"quantization_config": "fp8"}, "quantization_config must be an object, got 'fp8'"),
        (
            {"quantization_config": {"quant_method": "awq"}},
            "quant_method 'awq' and quant_algo None; weights can be counted for fp8",
        ),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}}, r"weight_block_size .* got \[0, 128\]"),
        (
            {"quantization_config": {"quant_method": "fp8", "ignore": [1]}},
            "quantization_config.ignore must be a list of at most 5,000",
        ),
    ],
)
def test_wrong_fields_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        read_weight_bytes({**GLM_53, **changes}, is_speculative=True)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "metadata.total_size must be a whole number of bytes .* got None"),
        ({"metadata": [], "weight_map": {}}, "metadata.total_size .* got None"),
        (index_of(-5), "metadata.total_size .* got -5"),
        (index_of(float("inf")), "metadata.total_size .* got inf"),
        (index_of(1 << 60), "metadata.total_size .* from 1 to 1,125,899,906,842,624"),
        ({"metadata": {"total_size": 1}, "weight_map": ["a"]}, "weight_map must map tensors to files, got list"),
        (
            index_of(755_617_140_416),
            r"total_size is 755,617,140,416 \(703.72 GiB\), but .* bfloat16 make 1,403.19 GiB: take both files",
        ),
    ],
)
def test_a_wrong_index_is_refused(index: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        read_weight_bytes(GLM_53, is_speculative=True, index=index)


@given(tp=st.sampled_from([1, 2, 4, 8, 16]), dp=st.integers(1, 16), switches=st.tuples(st.booleans(), st.booleans()))
def test_gpus_together_hold_every_weight_and_none_holds_more_than_all(tp: int, dp: int, switches: tuple[bool, bool]) -> None:
    is_speculative, expert_parallel = switches
    weights = read_weight_bytes(GLM_53_FP8, is_speculative=is_speculative)
    on_gpu = weights.per_gpu_bytes(tensor_parallel_size=tp, data_parallel_size=dp, expert_parallel=expert_parallel)
    assert weights.total_bytes <= tp * dp * on_gpu
    assert on_gpu <= weights.total_bytes + weights.absorbed_bytes
