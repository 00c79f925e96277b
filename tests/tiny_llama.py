"""A model that vLLM loads and serves like any other, in half a megabyte: Llama with random weights, a token for each byte."""

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

SEED = 20
VOCABULARY_SIZE = 512
HIDDEN_SIZE = 64
INTERMEDIATE_SIZE = 128
NUM_LAYERS = 2
NUM_HEADS = 4
NUM_KV_HEADS = 2
HEAD_SIZE = 32  # the smallest that vLLM's attention for a CPU has
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": INTERMEDIATE_SIZE,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KV_HEADS,
    "head_dim": HEAD_SIZE,
    "vocab_size": VOCABULARY_SIZE,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SPECIAL_TOKENS = ("<unk>", "<s>", "</s>")
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def write_tiny_llama(folder: Path) -> None:
    """Fills `folder`, made when it is not there, with all that vLLM wants of a model. The same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", CONFIG)
    _write_json(folder / "tokenizer.json", _tokenizer())
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": _CHAT_TEMPLATE,
            "model_max_length": CONFIG["max_position_embeddings"],
        },
    )
    _write_weights(folder / "model.safetensors")


def _tokenizer() -> dict[str, object]:
    """Byte-level BPE without a merge: text becomes its UTF-8 bytes. Tokens beyond them have names and never come from text."""
    words = [*_SPECIAL_TOKENS, *_byte_characters()]
    words += [f"w{number}" for number in range(VOCABULARY_SIZE - len(words))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": word, **special} for number, word in enumerate(_SPECIAL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [],
        },
    }


def _byte_characters() -> Iterator[str]:
    """GPT-2's printable stand-ins for the 256 bytes: printable ones stand for themselves, the others follow from U+0100 on."""
    next_stand_in = 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            yield chr(byte)
        else:
            yield chr(next_stand_in)
            next_stand_in += 1


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    queries, keys = (NUM_HEADS * HEAD_SIZE, HIDDEN_SIZE), (NUM_KV_HEADS * HEAD_SIZE, HIDDEN_SIZE)
    yield "model.embed_tokens.weight", (VOCABULARY_SIZE, HIDDEN_SIZE)
    for layer in range(NUM_LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (HIDDEN_SIZE,)
        yield f"{prefix}.self_attn.q_proj.weight", queries
        yield f"{prefix}.self_attn.k_proj.weight", keys
        yield f"{prefix}.self_attn.v_proj.weight", keys
        yield f"{prefix}.self_attn.o_proj.weight", queries[::-1]
        yield f"{prefix}.post_attention_layernorm.weight", (HIDDEN_SIZE,)
        yield f"{prefix}.mlp.gate_proj.weight", (INTERMEDIATE_SIZE, HIDDEN_SIZE)
        yield f"{prefix}.mlp.up_proj.weight", (INTERMEDIATE_SIZE, HIDDEN_SIZE)
        yield f"{prefix}.mlp.down_proj.weight", (HIDDEN_SIZE, INTERMEDIATE_SIZE)
    yield "model.norm.weight", (HIDDEN_SIZE,)
    yield "lm_head.weight", (VOCABULARY_SIZE, HIDDEN_SIZE)


def _write_weights(file: Path) -> None:
    """safetensors: length of the header, header with places, then the values of all tensors, here bfloat16."""
    source = random.Random(SEED)  # noqa: S311  weights, no secrets
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    values = bytearray()
    for name, shape in _shapes():
        begin = len(values)
        if len(shape) == 1:
            values += _bfloat16(1.0) * shape[0]  # a norm that scales nothing
        else:
            values += b"".join(_bfloat16(source.gauss(0, 0.1)) for _ in range(shape[0] * shape[1]))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(values)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # values begin at a multiple of 8
    file.write_bytes(struct.pack("<Q", len(text)) + text + values)


def _bfloat16(value: float) -> bytes:
    """The upper half of a float32, little-endian."""
    return struct.pack("<f", value)[2:]


def _write_json(file: Path, content: dict[str, object]) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
