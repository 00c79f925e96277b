"""One case through vLLM's own code: arguments, configuration, model layers, and the engine core's planning of the KV caches."""

import contextlib
import io
import json
import logging
import re
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.contract.upstream_side.attention_layers import build_layers
from tests.contract.upstream_side.fake_platform import Machine
from tests.contract.upstream_side.plan_record import plan_record

# What vLLM refuses with. Anything else is a mistake of this side, and no answer.
REFUSALS = (ValueError, NotImplementedError, AssertionError)
MAX_TEXT_LENGTH = 300
OFFLOADED_BYTES = 128 * 2**30


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """`{"id", "vllm", "plan"}`, or `{"id", "vllm", "refused": {"stage", "text"}}`."""
    known = {"id": case["id"], "vllm": import_module("vllm").__version__.split("+")[0]}
    Machine.num_gpus = case["num_gpus"]
    stage = "argparse"
    complaints = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, _warnings_of_hisparse() as warnings:
        (Path(folder) / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
        try:
            with contextlib.redirect_stderr(complaints):
                parsed = _parse(arguments(case, model=folder))
            stage = "config"
            vllm_config = _configure(parsed)
            stage = "planning"
            plan = _plan(vllm_config, kv_bytes=case["gpu_kv_bytes"])
        except SystemExit:
            return known | {"refused": {"stage": stage, "text": _last_error(complaints.getvalue())}}
        except REFUSALS as error:
            return known | {"refused": {"stage": stage, "text": _core_of(error, folder=folder)}}
        return known | {"plan": plan | {"warnings": warnings}}


def arguments(case: dict[str, Any], *, model: str) -> list[str]:
    """The engine's command line for a case; absent values are left to vLLM's defaults."""
    valued = {
        "--model": model,
        "--tensor-parallel-size": case["tensor_parallel_size"],
        "--data-parallel-size": case["data_parallel_size"],
        "--kv-cache-dtype": case["kv_cache_dtype"],
        "--block-size": case["block_size"],
        "--max-model-len": case["max_model_len"],
        "--max-num-batched-tokens": case["max_num_batched_tokens"],
        "--max-num-seqs": case["max_num_seqs"],
    }
    words = [word for name, value in valued.items() if value is not None for word in (name, str(value))]
    words.append("--skip-tokenizer-init")
    if case["async_scheduling"] is not None:
        words.append("--async-scheduling" if case["async_scheduling"] else "--no-async-scheduling")
    if case["num_speculative_tokens"]:
        words += ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": case["num_speculative_tokens"]})]
    if case["device_buffer_size"] is not None:
        words += ["--attention-config", json.dumps({"hisparse_config": {"device_buffer_size": case["device_buffer_size"]}})]
    if connectors := _connectors(case):
        words += ["--kv-transfer-config", json.dumps(connectors)]
    return [*words, *case["extra_args"]]


def _connectors(case: dict[str, Any]) -> dict[str, Any] | None:
    children = []
    if case["hisparse"]:
        children.append(_connector("HiSparseConnector", host_pool_gib=case["host_pool_gib"]))
    if case["offload"]:
        children.append(_connector("OffloadingConnector", spec_name="TieringOffloadingSpec", cpu_bytes_to_use=OFFLOADED_BYTES))
    return children[0] if len(children) == 1 else _connector("MultiConnector", connectors=children) if children else None


def _connector(name: str, **extra: Any) -> dict[str, Any]:
    return {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}


def _parse(words: list[str]) -> Any:
    engine_args = import_module("vllm.engine.arg_utils").EngineArgs
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    return engine_args.from_cli_args(engine_args.add_cli_args(parser).parse_args(words))


def _configure(parsed: Any) -> Any:
    usage = import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
    return parsed.create_engine_config(usage_context=usage)


def _plan(vllm_config: Any, *, kv_bytes: int) -> dict[str, Any]:
    """As a worker does after loading, and the engine core with what the workers say."""
    # Selections are cached without the model that they were checked against.
    import_module("vllm.v1.attention.selector")._cached_get_attn_backend.cache_clear()
    build_layers(vllm_config)
    import_module("vllm.platforms").current_platform.update_block_size_for_backend(vllm_config)
    core = object.__new__(import_module("vllm.v1.engine.core").EngineCore)
    core.model_executor = workers = Workers(vllm_config, kv_bytes=kv_bytes)
    core._initialize_kv_caches(vllm_config)
    return plan_record(vllm_config, workers.kv_cache_config, workers.specs)


class Workers:
    """The executor that the engine core plans with: one worker's answers, since all ranks give the same."""

    def __init__(self, vllm_config: Any, *, kv_bytes: int) -> None:
        self._config, self._kv_bytes = vllm_config, kv_bytes
        self.specs: dict[str, Any] = {}
        self.kv_cache_config: Any = None

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        self.specs = import_module("vllm.v1.worker.gpu.attn_utils").get_kv_cache_spec(self._config)
        return [self.specs]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [import_module("vllm.v1.worker.worker_base").WorkerBase.get_supported_kv_cache_layouts(self._stub())]

    def determine_available_memory(self) -> list[int]:
        return [self._kv_bytes]

    def set_kv_cache_layout(self, layout_name: str, *_: object) -> None:
        record = import_module("vllm.v1.attention.backends.utils").record_kv_cache_layout
        record(self._config.cache_config, layout_name)

    def collective_rpc(self, method: str, *arguments: object) -> list[Any]:
        """The engine core tells the workers a fitted max_model_len; they share this process's configuration."""
        if method != "update_max_model_len":
            raise RuntimeError(f"planning calls {method}{arguments} on the workers, which nobody answers here")
        return []

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        """Nothing is allocated: the plan is what was wanted."""
        (self.kv_cache_config,) = kv_cache_configs

    def compile_or_warm_up_model(self) -> None:
        """Nothing is run."""

    def _stub(self) -> Any:
        class Worker:
            vllm_config = self._config

        return Worker()


@contextlib.contextmanager
def _warnings_of_hisparse() -> Iterator[list[str]]:
    """Where records are made, not at a handler: vLLM configures logging anew on the way, which takes handlers off."""
    lines: list[str] = []
    made = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = made(*args, **kwargs)
        if record.name.startswith("vllm.v1.hisparse") and record.levelno >= logging.WARNING:
            lines.append(record.getMessage())
        return record

    logging.setLogRecordFactory(factory)
    try:
        yield lines
    finally:
        logging.setLogRecordFactory(made)


def _last_error(text: str) -> str:
    return text.rpartition("error: ")[2].strip()[:MAX_TEXT_LENGTH]


def _core_of(error: Exception, *, folder: str) -> str:
    """pydantic wraps a validator's message: the message is wanted."""
    text = str(error)
    wrapped = re.search(r"(?:Value error|Assertion failed), (.*?)(?: \[type=|$)", text, re.DOTALL)
    return f"{type(error).__name__}: {(wrapped[1] if wrapped else text).strip()}".replace(folder, "MODEL")[:MAX_TEXT_LENGTH]
