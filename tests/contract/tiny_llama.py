"""A Llama so small that vLLM serves it on a CPU: a config and a tokenizer, written as JSON; its weights are random."""

import json
from pathlib import Path
from typing import Any

VOCABULARY = 512
_SPECIAL = ("<unk>", "<s>", "</s>")
_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def make_tiny_llama(folder: Path) -> None:
    """For `--load-format dummy`: `folder` has no weights."""
    folder.mkdir(parents=True)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    _write(folder / "config.json", _CONFIG)
    _write(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "added_tokens": [_special_token(number, word) for number, word in enumerate(_SPECIAL)],
            "pre_tokenizer": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", "unk_token": _SPECIAL[0], "vocab": _vocabulary(), "merges": []},
        },
    )
    _write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    )


def _vocabulary() -> dict[str, int]:
    """Every byte is a token of its own, and there are words that no text is made of."""
    words = [*_SPECIAL, *_byte_letters()]
    words += [f"w{number}" for number in range(VOCABULARY - len(words))]
    return {word: number for number, word in enumerate(words)}


def _byte_letters() -> list[str]:
    """One visible letter for each byte, as byte-level tokenizers have them."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    return [chr(byte) for byte in sorted(visible)] + [chr(0x100 + number) for number in range(256 - len(visible))]


def _special_token(number: int, word: str) -> dict[str, Any]:
    rules = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": word, "special": True, **rules}


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")
