"""`python -m tests.contract.upstream_side.arguments_answer`: command lines as JSON lines in, what vLLM makes of them out.

Everything that a CPU can do of a start, in its order: the parser and checks of `vllm serve`, the engine's configuration, the
model's layers, the plan of its KV caches, and the scheduler's side of its connectors.
"""

import contextlib
import io
import json
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.contract.upstream_side.arguments_parser import serve_parser, validate_serve
from tests.contract.upstream_side.arguments_record import config_record
from tests.contract.upstream_side.attention_layers import build_layers
from tests.contract.upstream_side.fake_platform import GPUS, Machine
from tests.contract.upstream_side.per_gpu import Case, answer_by_gpu
from tests.contract.upstream_side.plan_record import plan_record
from tests.contract.upstream_side.planner import Workers

MODEL = "MODEL"  # stands for the folder with the case's config.json
NO_GPU = "none"
MAX_TEXT_LENGTH = 600
SUBJECTS = ("HiSparse", "Found duplicate keys")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where vLLM's pools are
# Pools of the offload tier are mapped for real when its scheduler starts: no larger than this.
LARGEST_OFFLOAD_BYTES = 64 * 2**20


class RefusedError(Exception):
    """vLLM does not start: `stage` is how far it came."""

    def __init__(self, stage: str, text: str) -> None:
        super().__init__(text)
        self.stage, self.text = stage, text


def _answers(gpu: str, cases: list[Case]) -> Iterator[dict[str, Any]]:
    if gpu == NO_GPU:
        import_module("vllm.platforms").__dict__["_current_platform"] = import_module("vllm.platforms.cpu").CpuPlatform()
    Machine.gpu = GPUS.get(gpu, GPUS["H200"])  # modules that are only imported ask, too
    parser = serve_parser()
    for case in cases:
        yield answer(case, parser=parser)


def answer(case: dict[str, Any], *, parser: Any) -> dict[str, Any]:
    """`{"id", "vllm", "started": {...}, "warnings"}` or `{"id", "vllm", "refused": {"stage", "text"}, "warnings"}`."""
    known = {"id": case["id"], "vllm": import_module("vllm").__version__.split("+")[0]}
    Machine.num_gpus = case["num_gpus"]
    with tempfile.TemporaryDirectory() as folder, _environment(case["environment"]), _warnings() as said:
        _write_model(Path(folder), case["config"])
        words = [folder if word == MODEL else word.replace(f"={MODEL}", f"={folder}") for word in case["words"]]
        try:
            outcome: dict[str, Any] = {"started": _start(parser, words, kv_bytes=case["gpu_kv_bytes"])}
        except RefusedError as error:
            text = error.text.replace(folder, MODEL)[:MAX_TEXT_LENGTH]
            outcome = {"refused": {"stage": error.stage, "text": text}}
        return known | outcome | {"warnings": [line.replace(folder, MODEL) for line in said]}


def _write_model(folder: Path, config: dict[str, Any]) -> None:
    """A tokenizer of three words, for options that look tokens up."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "<think>": 1, "</think>": 2}, "unk_token": "<unk>"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def _start(parser: Any, words: list[str], *, kv_bytes: int) -> dict[str, Any]:
    with _stage("argparse"):
        parsed = parser.parse_args(words)
        validate_serve(parsed)
        if parsed.model_tag is not None:  # as the serve command does
            parsed.model = parsed.model_tag
        arguments = import_module("vllm.engine.arg_utils").AsyncEngineArgs.from_cli_args(parsed)
    with _stage("config"):
        usage = import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
        config = arguments.create_engine_config(usage_context=usage)
        record = config_record(parsed, config)
    if not hasattr(config.model_config.hf_config, "index_topk"):
        return record  # layers of other models want kernels that are not there
    with _stage("model"):
        # Selections are cached without the model that they were checked against.
        import_module("vllm.v1.attention.selector")._cached_get_attn_backend.cache_clear()
        build_layers(config)
    with _stage("planning"):
        import_module("vllm.platforms").current_platform.update_block_size_for_backend(config)
        # a size that the command line has is taken instead of what profiling finds
        kv_bytes = config.cache_config.kv_cache_memory_bytes or kv_bytes
        core = object.__new__(import_module("vllm.v1.engine.core").EngineCore)
        core.model_executor = workers = Workers(config, kv_bytes=kv_bytes)
        core._initialize_kv_caches(config)
        record |= plan_record(config, workers.kv_cache_config, workers.specs)
    with _stage("workers"):
        _connect(config, workers.kv_cache_config)
    return record


def _connect(config: Any, kv_cache_config: Any) -> None:
    """The scheduler's side of the connectors; the workers' side wants GPUs."""
    if config.kv_transfer_config is None:
        return
    _shrink_offloading(config.kv_transfer_config)
    core = import_module("vllm.v1.engine.core")
    role = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base").KVConnectorRole.SCHEDULER
    factory = import_module("vllm.distributed.kv_transfer.kv_connector.factory").KVConnectorFactory
    try:
        factory.create_connector(
            config=config, role=role, kv_cache_config=core.generate_scheduler_kv_cache_config([kv_cache_config])
        )
    finally:
        for path in SHARED_MEMORY.glob(f"vllm_offload_{config.kv_transfer_config.engine_id}*"):
            path.unlink()


def _shrink_offloading(transfer: Any) -> None:
    extra = transfer.kv_connector_extra_config
    members = extra.get("connectors", [])
    children = [child.get("kv_connector_extra_config", {}) for child in members if isinstance(child, dict)]
    for settings in (extra, *children):
        size_bytes = settings.get("cpu_bytes_to_use")
        if isinstance(size_bytes, int | float) and size_bytes > LARGEST_OFFLOAD_BYTES:
            settings["cpu_bytes_to_use"] = LARGEST_OFFLOAD_BYTES


@contextlib.contextmanager
def _stage(name: str) -> Iterator[None]:
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints):
            yield
    except SystemExit:
        raise RefusedError(name, complaints.getvalue().rpartition("error: ")[2].strip()) from None
    except Exception as error:  # noqa: BLE001  whatever it raises, vLLM would not start
        raise RefusedError(name, _core_of(error)) from None


def _core_of(error: Exception) -> str:
    """pydantic wraps a validator's message: the message is wanted."""
    text = str(error)
    wrapped = re.search(r"(?:Value error|Assertion failed), (.*?)(?: \[type=|$)", text, re.DOTALL)
    return f"{type(error).__name__}: {(wrapped[1] if wrapped else text).strip()}"


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    """What vLLM warns of and we speak of as well, each text once.

    Taken where records are made: vLLM configures logging anew on the way, which takes handlers off.
    """
    lines: list[str] = []
    made = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = made(*args, **kwargs)
        text = record.getMessage()
        if record.levelno >= logging.WARNING and any(subject in text for subject in SUBJECTS) and text not in lines:
            lines.append(text)
        return record

    logging.setLogRecordFactory(factory)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield lines
    finally:
        logging.setLogRecordFactory(made)


if __name__ == "__main__":
    sys.exit(answer_by_gpu(_answers))
