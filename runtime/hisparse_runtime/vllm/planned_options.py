"""Options of `vllm serve` that a plan decides, or that would undo it: nobody may give them beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hisparse_runtime.geometry import VllmVersion
from hisparse_runtime.vllm.command_line.meaning import COMPILATION, Meaning, read_meaning
from hisparse_runtime.vllm.command_line.options import option_table
from hisparse_runtime.vllm.command_line.words import CommandLine, Item, read_command_line


class Decision(StrEnum):
    """What of the plan an option would decide."""

    CONNECTORS = "connectors"
    ATTENTION = "attention"
    ROW_FORMAT = "row format"
    GPU_BLOCKS = "GPU blocks"
    KV_MEMORY = "KV memory"
    OFFLOAD = "offload tier"
    CACHE_DTYPE = "KV cache dtype"
    CONTEXT = "context length"
    NUM_SEQS = "requests at once"
    BATCHED_TOKENS = "tokens of a step"
    BLOCK_SIZE = "block size"
    TENSOR_PARALLEL = "tensor parallelism"
    DATA_PARALLEL = "data parallelism"
    EXPERT_PARALLEL = "expert parallelism"
    OTHER_PARALLEL = "other parallelism"
    SPECULATION = "speculation"
    GPU_SHARE = "share of the GPU"
    ASYNC_SCHEDULING = "async scheduling"
    ADMISSION = "admission"
    CACHE_MANAGER = "cache manager"
    CUDA_GRAPHS = "CUDA graphs"
    ADDRESS = "address"
    SHUTDOWN = "shutdown"
    SECRET = "secret"  # noqa: S105  a kind of option, not a secret
    CONFIG_FILE = "config file"


# Why it cannot be left to the user, where the name does not say it.
_REASONS = {
    Decision.ATTENTION: "host_pool_gib in hisparse_config is the dialect of a branch that every release refuses",
    Decision.ROW_FORMAT: "the backend decides the row format",
    Decision.GPU_BLOCKS: "the override would leave the host pool at another size than planned",
    Decision.OTHER_PARALLEL: "an engine is planned as tensor-parallel replicas",
    Decision.ADMISSION: "HiSparse admits a request with all of its pages, or not",
    Decision.CACHE_MANAGER: "HiSparse needs the hybrid one",
    Decision.CUDA_GRAPHS: "cudagraph_mode FULL is refused with HiSparse, or corrupts its output",
    Decision.ADDRESS: "probes and routers go by it",
    Decision.SHUTDOWN: "it is a part of the time that a pod gets to stop",
    Decision.SECRET: "command lines are no place for secrets: use VLLM_API_KEY or HF_TOKEN, from a Secret",
    Decision.CONFIG_FILE: "what is in the file cannot be checked: give its options themselves",
}
_DECIDED = {
    "--kv-transfer-config": Decision.CONNECTORS,
    "--attention-config": Decision.ATTENTION,
    "--attention-backend": Decision.ROW_FORMAT,
    "--num-gpu-blocks-override": Decision.GPU_BLOCKS,
    "--kv-cache-memory-bytes": Decision.KV_MEMORY,
    "--kv-offloading-size": Decision.OFFLOAD,
    "--kv-offloading-backend": Decision.OFFLOAD,
    "--kv-cache-dtype": Decision.CACHE_DTYPE,
    "--max-model-len": Decision.CONTEXT,
    "--max-num-seqs": Decision.NUM_SEQS,
    "--max-num-batched-tokens": Decision.BATCHED_TOKENS,
    "--block-size": Decision.BLOCK_SIZE,
    "--tensor-parallel-size": Decision.TENSOR_PARALLEL,
    "--data-parallel-size": Decision.DATA_PARALLEL,
    "--data-parallel-size-local": Decision.DATA_PARALLEL,
    "--enable-expert-parallel": Decision.EXPERT_PARALLEL,
    "--pipeline-parallel-size": Decision.OTHER_PARALLEL,
    "--decode-context-parallel-size": Decision.OTHER_PARALLEL,
    "--prefill-context-parallel-size": Decision.OTHER_PARALLEL,
    "--distributed-executor-backend": Decision.OTHER_PARALLEL,
    "--nnodes": Decision.OTHER_PARALLEL,
    "--speculative-config": Decision.SPECULATION,
    "--spec-method": Decision.SPECULATION,
    "--spec-model": Decision.SPECULATION,
    "--spec-tokens": Decision.SPECULATION,
    "--gpu-memory-utilization": Decision.GPU_SHARE,
    "--async-scheduling": Decision.ASYNC_SCHEDULING,
    "--scheduler-reserve-full-isl": Decision.ADMISSION,
    "--disable-hybrid-kv-cache-manager": Decision.CACHE_MANAGER,
    "--model": Decision.ADDRESS,
    "--served-model-name": Decision.ADDRESS,
    "--host": Decision.ADDRESS,
    "--port": Decision.ADDRESS,
    "--uds": Decision.ADDRESS,
    "--shutdown-timeout": Decision.SHUTDOWN,
    "--api-key": Decision.SECRET,
    "--hf-token": Decision.SECRET,
    "--config": Decision.CONFIG_FILE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """`typed` is the option as it was given, `option` its own name. `why` is empty where the decision says it all."""

    typed: str
    option: str
    decision: Decision
    why: str

    @property
    def reason(self) -> str:
        return self.why or f"the plan decides the {self.decision}"


def conflicts(options: Sequence[str], version: VllmVersion) -> tuple[Conflict, ...]:
    """Those of `options`, words of a command line, that a plan decides: by any name, abbreviation or spelling that vLLM takes."""
    line = read_command_line(["serve", *options], option_table(version))
    found = [_conflict(item, _DECIDED[item.option.name]) for item in line.items if item.option and item.option.name in _DECIDED]
    return (*found, *_graphs(line, read_meaning(line)))


def _conflict(item: Item, decision: Decision) -> Conflict:
    assert item.option is not None
    return Conflict(typed=item.name, option=item.option.name, decision=decision, why=_REASONS.get(decision, ""))


def _graphs(line: CommandLine, meaning: Meaning) -> tuple[Conflict, ...]:
    if meaning.cudagraph_mode != "FULL":
        return ()
    return tuple(_conflict(item, Decision.CUDA_GRAPHS) for item in line.given(COMPILATION)[-1:])
