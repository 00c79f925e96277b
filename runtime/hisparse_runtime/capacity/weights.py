"""What a model's weights take on one GPU: counted from config.json, corrected by the checkpoint's total where that is known.

Counted are the tensors of GLM-5.x and DeepSeek-V3.2 (sparse MLA, mixture of experts), and the copies of the key and value
up-projections that vLLM makes in full precision as it loads (W_UK, W_UV: the absorbed form that MLA decodes with). Not counted:
what kernels repack or pad, quantised indexer keys that vLLM holds in 16 bits, buffers. Who holds what follows vLLM's model code
(deepseek_v2.py, deepseek_mtp.py, fused_moe/config.py), 0.30 to 0.33.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import translate
from typing import Any

from hisparse_runtime.capacity.units import human_bytes
from hisparse_runtime.geometry import MOST_LAYERS, ModelConfigError, indexer_owners, whole_number

_MODEL_TYPES = ("glm_moe_dsa", "deepseek_v32")
_DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_FLOAT32_BYTES = 4
# Bounds of what is read from files that others wrote: far above any model, low enough to count in an instant.
_LARGEST_CHECKPOINT_BYTES = 1 << 50
_MOST_IGNORED_MODULES = 5_000
_LONGEST_MODULE_NAME = 200
# Formats differ by a quarter at least (4.5, 8, 16 bits an element), what is not counted is far below one hundredth.
_LARGEST_DEVIATION = 0.1


class WeightsError(ModelConfigError):
    """The weights cannot be counted; the message names the field, and what would do."""


class _Holder(Enum):
    """Who holds a tensor among the GPUs that serve one model."""

    SPLIT = auto()  # over the tensor-parallel ranks, a copy in each data-parallel replica
    WHOLE = auto()  # every GPU has all of it
    SHARED_EXPERT = auto()  # split, or whole where vLLM's mixture of experts is sequence-parallel
    EXPERT = auto()  # over all GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """Weights of one model. `shared_bytes` is all but the routed experts, `source` says in words where the numbers are from.

    Of `shared_bytes`, every GPU holds `replicated_bytes` in full, and `shared_expert_bytes` are the shared experts.
    `absorbed_bytes` are copies that exist on GPUs only, not in the checkpoint.
    """

    shared_bytes: int
    expert_bytes: int
    source: str
    replicated_bytes: int = 0
    shared_expert_bytes: int = 0
    absorbed_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """One copy of everything that is loaded."""
        return self.shared_bytes + self.expert_bytes

    def per_gpu_bytes(self, *, tensor_parallel_size: int, data_parallel_size: int, expert_parallel: bool) -> int:
        """Bytes on one GPU of `tensor_parallel_size` x `data_parallel_size` that serve the model together.

        vLLM spreads routed experts over all of them: whole experts with expert parallelism, a slice of each without.
        """
        whole_bytes = self.replicated_bytes
        if expert_parallel and tensor_parallel_size > 1 and data_parallel_size > 1:
            # Tokens are then split over the ranks, so each needs the whole shared expert.
            whole_bytes += self.shared_expert_bytes
        split_bytes = self.shared_bytes - whole_bytes + self.absorbed_bytes
        num_gpus = tensor_parallel_size * data_parallel_size
        return whole_bytes + -(-split_bytes // tensor_parallel_size) + -(-self.expert_bytes // num_gpus)


def read_weight_bytes(config: Mapping[str, Any], *, is_speculative: bool, index: Mapping[str, Any] | None = None) -> WeightBytes:
    """Weights of the model that `config` (the content of config.json) describes.

    `index` is the content of model.safetensors.index.json: its total is exact, and config.json then only says how it is divided.
    MTP layers are loaded with speculation only. Raises ModelConfigError naming the field that is missing, wrong, or at odds with
    the index.
    """
    _check_model_type(config)
    number_format = _read_number_format(config)
    loaded = _count(config, number_format, with_mtp=is_speculative)
    absorbed_bytes = _absorbed_bytes(config, number_format, with_mtp=is_speculative)
    source = f"config.json: shapes, {number_format.name}"
    if index is not None:
        index_bytes = _index_bytes(index)
        counted_bytes = sum(_count(config, number_format, with_mtp=True).values())
        counted_bytes += _duplicate_bytes(config, number_format, index)
        _check_same_checkpoint(index_bytes=index_bytes, counted_bytes=counted_bytes, number_format=number_format)
        loaded = {holder: -(-size_bytes * index_bytes // counted_bytes) for holder, size_bytes in loaded.items()}
        source = f"safetensors index: {human_bytes(index_bytes)} in all, divided by config.json: shapes, {number_format.name}"
    return WeightBytes(
        shared_bytes=loaded[_Holder.SPLIT] + loaded[_Holder.WHOLE] + loaded[_Holder.SHARED_EXPERT],
        expert_bytes=loaded[_Holder.EXPERT],
        source=source,
        replicated_bytes=loaded[_Holder.WHOLE],
        shared_expert_bytes=loaded[_Holder.SHARED_EXPERT],
        absorbed_bytes=absorbed_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _NumberFormat:
    """How matrices are stored. `bits` an element, a scale for each block of rows x columns, and `matrix_bytes` a matrix.

    Vectors, embeddings, the head, routers and modules that the checkpoint names are left in `plain_bytes` an element.
    """

    name: str
    plain_bytes: int
    bits: int
    scale_block: tuple[int, int] | None = None
    scale_bytes: int = 0
    matrix_bytes: int = 0
    ignored_modules: frozenset[str] = frozenset()
    ignored_pattern: re.Pattern[str] | None = None

    def is_ignored(self, name: str) -> bool:
        if self.ignored_pattern is not None and self.ignored_pattern.match(name):
            return True
        parts = name.split(".")
        return any(".".join(parts[:length]) in self.ignored_modules for length in range(1, len(parts) + 1))

    def size_bytes(self, tensor: "_Tensor") -> int:
        num_elements = tensor.rows * tensor.columns
        if not tensor.is_quantizable or self.is_ignored(tensor.name):
            return tensor.num * num_elements * (tensor.element_bytes or self.plain_bytes)
        size_bytes = -(-num_elements * self.bits // 8) + self.matrix_bytes
        if self.scale_block is not None:
            rows, columns = self.scale_block
            size_bytes += -(-tensor.rows // rows) * -(-tensor.columns // columns) * self.scale_bytes
        return tensor.num * size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """`num` matrices of one shape. `element_bytes` is given where it is not the model's own."""

    name: str
    rows: int
    columns: int
    holder: _Holder
    num: int = 1
    is_quantizable: bool = True
    element_bytes: int | None = None


def _count(config: Mapping[str, Any], number_format: _NumberFormat, *, with_mtp: bool) -> dict[_Holder, int]:
    sizes = dict.fromkeys(_Holder, 0)
    for tensor in _tensors(config, with_mtp=with_mtp):
        sizes[tensor.holder] += number_format.size_bytes(tensor)
    return sizes


def _tensors(config: Mapping[str, Any], *, with_mtp: bool) -> Iterator[_Tensor]:
    hidden, vocabulary = whole_number(config, "hidden_size"), whole_number(config, "vocab_size")
    tables = ["model.embed_tokens"] if config.get("tie_word_embeddings") is True else ["model.embed_tokens", "lm_head"]
    for table in tables:
        yield _Tensor(name=table, rows=vocabulary, columns=hidden, holder=_Holder.SPLIT, is_quantizable=False)
    yield _vector("model.norm", hidden)
    num_layers = whole_number(config, "num_hidden_layers", maximum=MOST_LAYERS)
    num_dense = whole_number(config, "first_k_dense_replace", minimum=0)
    owns_indexer = indexer_owners(config, num_layers=num_layers)
    moe_every = whole_number(config, "moe_layer_freq", default=1)
    for layer in range(num_layers + (_num_mtp_layers(config) if with_mtp else 0)):
        prefix = f"model.layers.{layer}"
        is_mtp = layer >= num_layers
        yield _vector(f"{prefix}.norms", 2 * hidden)
        yield from _attention(config, f"{prefix}.self_attn")
        if is_mtp or owns_indexer[layer]:
            yield from _indexer(config, f"{prefix}.self_attn.indexer")
        if layer >= num_dense and layer % moe_every == 0:
            yield from _experts(config, f"{prefix}.mlp")
        else:
            yield from _mlp(f"{prefix}.mlp", hidden, whole_number(config, "intermediate_size"), _Holder.SPLIT)
        if is_mtp:
            # Joins the hidden state and the next token's embedding; norms for both, and one in front of the head.
            yield _Tensor(name=f"{prefix}.eh_proj", rows=hidden, columns=2 * hidden, holder=_Holder.WHOLE, is_quantizable=False)
            yield _vector(f"{prefix}.mtp_norms", 3 * hidden)


def _attention(config: Mapping[str, Any], prefix: str) -> Iterator[_Tensor]:
    hidden, heads = whole_number(config, "hidden_size"), whole_number(config, "num_attention_heads")
    q_rank, kv_rank = whole_number(config, "q_lora_rank"), whole_number(config, "kv_lora_rank")
    nope, rope = whole_number(config, "qk_nope_head_dim"), whole_number(config, "qk_rope_head_dim", minimum=0)
    value = whole_number(config, "v_head_dim")
    yield _Tensor(name=f"{prefix}.q_a_proj", rows=q_rank, columns=hidden, holder=_Holder.WHOLE)
    yield _Tensor(name=f"{prefix}.q_b_proj", rows=heads * (nope + rope), columns=q_rank, holder=_Holder.SPLIT)
    yield _Tensor(name=f"{prefix}.kv_a_proj_with_mqa", rows=kv_rank + rope, columns=hidden, holder=_Holder.WHOLE)
    yield _Tensor(name=f"{prefix}.kv_b_proj", rows=heads * (nope + value), columns=kv_rank, holder=_Holder.SPLIT)
    yield _Tensor(name=f"{prefix}.o_proj", rows=hidden, columns=heads * value, holder=_Holder.SPLIT)
    yield _vector(f"{prefix}.a_norms", q_rank + kv_rank)


def _indexer(config: Mapping[str, Any], prefix: str) -> Iterator[_Tensor]:
    heads, head_dim = whole_number(config, "index_n_heads"), whole_number(config, "index_head_dim")
    hidden, q_rank = whole_number(config, "hidden_size"), whole_number(config, "q_lora_rank")
    yield _Tensor(name=f"{prefix}.wq_b", rows=heads * head_dim, columns=q_rank, holder=_Holder.WHOLE)
    yield _Tensor(name=f"{prefix}.wk", rows=head_dim, columns=hidden, holder=_Holder.WHOLE)
    yield _Tensor(name=f"{prefix}.weights_proj", rows=heads, columns=hidden, holder=_Holder.WHOLE, is_quantizable=False)
    yield _vector(f"{prefix}.k_norm", 2 * head_dim)  # weight and bias


def _experts(config: Mapping[str, Any], prefix: str) -> Iterator[_Tensor]:
    hidden, width = whole_number(config, "hidden_size"), whole_number(config, "moe_intermediate_size")
    num_experts, num_shared = whole_number(config, "n_routed_experts"), whole_number(config, "n_shared_experts", minimum=0)
    yield _Tensor(name=f"{prefix}.gate", rows=num_experts, columns=hidden, holder=_Holder.WHOLE, is_quantizable=False)
    yield _vector(f"{prefix}.gate.e_score_correction_bias", num_experts, element_bytes=_FLOAT32_BYTES)
    yield from _mlp(f"{prefix}.experts.0", hidden, width, _Holder.EXPERT, num=num_experts)
    if num_shared:
        yield from _mlp(f"{prefix}.shared_experts", hidden, width * num_shared, _Holder.SHARED_EXPERT)


def _mlp(prefix: str, hidden: int, width: int, holder: _Holder, num: int = 1) -> Iterator[_Tensor]:
    for name, rows, columns in (("gate_proj", width, hidden), ("up_proj", width, hidden), ("down_proj", hidden, width)):
        yield _Tensor(name=f"{prefix}.{name}", rows=rows, columns=columns, holder=holder, num=num)


def _vector(name: str, length: int, element_bytes: int | None = None) -> _Tensor:
    return _Tensor(name=name, rows=1, columns=length, holder=_Holder.WHOLE, is_quantizable=False, element_bytes=element_bytes)


def _num_mtp_layers(config: Mapping[str, Any]) -> int:
    return whole_number(config, "num_nextn_predict_layers", minimum=0, maximum=MOST_LAYERS, default=0)


def _absorbed_bytes(config: Mapping[str, Any], number_format: _NumberFormat, *, with_mtp: bool) -> int:
    num_layers = whole_number(config, "num_hidden_layers") + (_num_mtp_layers(config) if with_mtp else 0)
    head_dims = whole_number(config, "qk_nope_head_dim") + whole_number(config, "v_head_dim")
    num_elements = whole_number(config, "num_attention_heads") * head_dims * whole_number(config, "kv_lora_rank")
    return num_layers * num_elements * number_format.plain_bytes


def _duplicate_bytes(config: Mapping[str, Any], number_format: _NumberFormat, index: Mapping[str, Any]) -> int:
    """Embedding and head that some checkpoints (DeepSeek's) repeat in the MTP layer; vLLM shares the model's with it."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, Mapping):
        raise WeightsError(f"safetensors index: weight_map must map tensors to files, got {type(weight_map).__name__}")
    num_layers = whole_number(config, "num_hidden_layers")
    names = [
        f"model.layers.{num_layers + number}.{table}.weight"
        for number in range(_num_mtp_layers(config))
        for table in ("embed_tokens", "shared_head.head")
    ]
    table_bytes = whole_number(config, "vocab_size") * whole_number(config, "hidden_size") * number_format.plain_bytes
    return sum(table_bytes for name in names if name in weight_map)


def _index_bytes(index: Mapping[str, Any]) -> int:
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    # Some tools write the number with a decimal point.
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if not isinstance(total, int) or isinstance(total, bool) or not 0 < total <= _LARGEST_CHECKPOINT_BYTES:
        raise WeightsError(
            f"safetensors index: metadata.total_size must be a whole number of bytes from 1 to {_LARGEST_CHECKPOINT_BYTES:,},"
            f" got {total!r}"
        )
    return total


def _check_same_checkpoint(*, index_bytes: int, counted_bytes: int, number_format: _NumberFormat) -> None:
    if abs(index_bytes - counted_bytes) <= counted_bytes * _LARGEST_DEVIATION:
        return
    raise WeightsError(
        f"safetensors index: metadata.total_size is {index_bytes:,} ({human_bytes(index_bytes)}), but the shapes of config.json"
        f" in {number_format.name} make {human_bytes(counted_bytes)}: take both files from the same checkpoint"
    )


def _check_model_type(config: Mapping[str, Any]) -> None:
    model_type = config.get("model_type")
    if model_type not in _MODEL_TYPES:
        raise WeightsError(
            f"config.json: weights of model_type {model_type!r} cannot be counted, known are {', '.join(_MODEL_TYPES)}: give the"
            " KV memory per GPU instead"
        )


def _read_number_format(config: Mapping[str, Any]) -> _NumberFormat:
    # Newer configurations call it dtype.
    dtype = config.get("torch_dtype") or config.get("dtype")
    if not isinstance(dtype, str) or dtype not in _DTYPE_BYTES:
        raise WeightsError(f"config.json: torch_dtype must be one of {', '.join(_DTYPE_BYTES)}, got {dtype!r}")
    plain_bytes = _DTYPE_BYTES[dtype]
    quantization = config.get("quantization_config")
    if quantization is None:
        return _NumberFormat(name=dtype, plain_bytes=plain_bytes, bits=8 * plain_bytes)
    if not isinstance(quantization, Mapping):
        raise WeightsError(f"config.json: quantization_config must be an object, got {quantization!r}")
    modules, pattern = _read_ignored(quantization)
    method, algorithm = quantization.get("quant_method"), quantization.get("quant_algo")
    if method in ("modelopt", "modelopt_fp4") and algorithm == "NVFP4":
        # 4 bits an element, an 8-bit scale for 16 of them, two 32-bit scales a matrix
        return _NumberFormat(
            name="NVFP4 (4.5 bits)",
            plain_bytes=plain_bytes,
            bits=4,
            scale_block=(1, 16),
            scale_bytes=1,
            matrix_bytes=2 * _FLOAT32_BYTES,
            ignored_modules=modules,
            ignored_pattern=pattern,
        )
    if method == "fp8" or (method == "modelopt" and algorithm == "FP8"):
        block = _read_block(quantization)
        return _NumberFormat(
            name="FP8" if block is None else f"FP8 with scales of {block[0]} x {block[1]} blocks",
            plain_bytes=plain_bytes,
            bits=8,
            scale_block=block,
            scale_bytes=_FLOAT32_BYTES,
            matrix_bytes=_FLOAT32_BYTES if block is None else 0,
            ignored_modules=modules,
            ignored_pattern=pattern,
        )
    raise WeightsError(
        f"config.json: quantization_config has quant_method {method!r} and quant_algo {algorithm!r}; weights can be counted for"
        " fp8 and for modelopt's FP8 and NVFP4: give the KV memory per GPU instead"
    )


def _read_block(quantization: Mapping[str, Any]) -> tuple[int, int] | None:
    block = quantization.get("weight_block_size")
    if block is None:
        return None
    if isinstance(block, list) and len(block) == 2:
        rows, columns = block
        if type(rows) is int and type(columns) is int and rows > 0 and columns > 0:
            return rows, columns
    raise WeightsError(f"config.json: quantization_config.weight_block_size must be two positive whole numbers, got {block!r}")


def _read_ignored(quantization: Mapping[str, Any]) -> tuple[frozenset[str], re.Pattern[str] | None]:
    """Modules that stay as they were, by full name or with wildcards; each tool has a key of its own for them."""
    entries: list[str] = []
    for field in ("modules_to_not_convert", "ignore", "exclude_modules"):
        names = quantization.get(field) or []
        is_list = isinstance(names, list) and len(names) <= _MOST_IGNORED_MODULES
        if not is_list or not all(isinstance(name, str) and len(name) <= _LONGEST_MODULE_NAME for name in names):
            raise WeightsError(
                f"config.json: quantization_config.{field} must be a list of at most {_MOST_IGNORED_MODULES:,} module names,"
                f" each of at most {_LONGEST_MODULE_NAME} letters"
            )
        entries += names
    wildcards = [translate(entry) for entry in entries if "*" in entry]
    pattern = re.compile("|".join(wildcards)) if wildcards else None
    return frozenset(entry for entry in entries if "*" not in entry), pattern
