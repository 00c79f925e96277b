"""A model small enough to run thousands of tokens in a second, and an engine without HTTP around it."""

import random
from collections.abc import Callable, Mapping

import pytest

from hisparse_runtime.engine.build import EngineOptions, build_executor, build_settings
from hisparse_runtime.engine.executor import ExecutorCounters
from hisparse_runtime.engine.model_config import ModelConfig
from hisparse_runtime.engine.report import Report, take_report
from hisparse_runtime.policy import HiSparseMemory, PageState, check_integrity
from hisparse_runtime.scheduling import Request, Scheduler, Stepper

CONFIG = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "index_topk": 16,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "intermediate_size": 48,
    "vocab_size": 300,
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
}
# Two groups of one layer: 16 tokens x (16 + 8) floats in a device block, and two of those in a host block.
BLOCK_BYTES = 16 * 24 * 4


def make_options(
    *,
    device_blocks: int = 750,
    host_blocks: int = 500,
    offload_bytes: int = 1 << 20,
    max_num_batched_tokens: int = 128,
    max_num_seqs: int = 8,
    max_model_len: int = 512,
    device_buffer_size: int | None = None,
) -> EngineOptions:
    return EngineOptions(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        gpu_kv_bytes=device_blocks * BLOCK_BYTES,
        host_pool_bytes=host_blocks * 2 * BLOCK_BYTES,
        cpu_bytes_to_use=offload_bytes,
        device_buffer_size=device_buffer_size,
    )


class BareEngine:
    """Scheduler and executor, stepped by hand and checked after every step."""

    def __init__(self, config: ModelConfig, options: EngineOptions) -> None:
        settings = build_settings(config, options)
        self.geometry = config.geometry
        self.memory = HiSparseMemory(settings.policy)
        self.scheduler = Scheduler(settings.scheduler, self.memory)
        self.executor = build_executor(config, options, settings)
        self.stepper = Stepper(self.scheduler, self.executor)
        self.outputs: dict[str, list[int]] = {}
        self.most_host_only = 0

    @property
    def counters(self) -> ExecutorCounters:
        return self.executor.counters

    def report(self) -> Report:
        return take_report(self.scheduler, self.memory, executed=self.executor.counters, geometry=self.geometry)

    def add(self, name: str, prompt: list[int], *, output: int) -> None:
        self.scheduler.add(Request(request_id=name, tokens=list(prompt), num_prompt_tokens=len(prompt), max_tokens=output))

    def step(self) -> None:
        for output in self.stepper.step():
            self.outputs.setdefault(output.request.request_id, []).extend(output.tokens)
        check_integrity(self.memory)
        self.most_host_only = max(self.most_host_only, self.memory.totals.pages[PageState.HOST_ONLY])

    def run(self, *, on_step: Callable[[], None] = lambda: None) -> dict[str, list[int]]:
        for _ in range(5000):
            if not self.stepper.has_work:
                return self.outputs
            self.step()
            on_step()
        pytest.fail("the engine does not come to an end")


def make_prompts(seed: int, lengths: Mapping[str, int]) -> dict[str, list[int]]:
    """Tokens without any pattern, so that selections move around."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    return {name: [generator.randrange(300) for _ in range(length)] for name, length in lengths.items()}
