"""The attention layers of a model, built by its own model code on the meta device: no weights, no kernels.

Real: which layers there are, their names and order, which of them own an indexer, the backend that the platform selects, the
cache dtype that this backend asks for, and the cache spec of each layer. Stand-ins: whatever computes (MLP, indexer, attention).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from tests.contract.upstream_side.fake_platform import flashinfer_installed

# Modules in which names are replaced, where this model and version have them.
MODEL_MODULES = (
    "vllm.models.deepseek_v32.attention",
    "vllm.models.deepseek_v32.nvidia.model",
    "vllm.models.deepseek_v32.nvidia.mtp",
    "vllm.models.glm5next.common.attention",
    "vllm.models.glm5next.common.model",
)
WITHOUT_CACHE = ("DeepseekV2MLP", "DeepseekV2MoE", "Glm5NextMLP", "Glm5NextMoE", "SparseAttnIndexer", "SparseAttnIndexerKpool")


def build_layers(vllm_config: Any) -> None:
    """Registers every layer of the model, and of its MTP draft, in the config's forward context, as loading the model does."""
    loader = import_module("vllm.model_executor.model_loader.utils")
    _replace_what_computes()
    with flashinfer_installed(), _on_meta_device(vllm_config):
        loader.initialize_model(vllm_config=vllm_config)
        speculation = vllm_config.speculative_config
        if speculation is not None:
            # As vllm.v1.worker.gpu.spec_decode.eagle.utils.load_eagle_model does.
            if hasattr(speculation, "apply_draft_overrides"):
                vllm_config = speculation.apply_draft_overrides(vllm_config)
            loader.initialize_model(vllm_config=vllm_config, model_config=speculation.draft_model_config)


def _replace_what_computes() -> None:
    for module_name in MODEL_MODULES:
        module = sys.modules.get(module_name)  # configuring has imported the model's class, and thereby all of its modules
        for name in WITHOUT_CACHE:
            if hasattr(module, name):
                setattr(module, name, _nothing())
        for name in ("enable_glm52_low_latency_gemm", "build_glm52_plan"):
            if hasattr(module, name):
                setattr(module, name, lambda *_, **__: None)
        for name in ("DeepseekV32ForCausalLM", "DeepseekV32MTP"):
            if hasattr(module, name):
                getattr(module, name).set_moe_parameters = lambda _: None
    attention: Any = import_module("vllm.model_executor.layers.attention.mla_attention")
    select = attention.get_attn_backend
    if hasattr(select, "is_wrapped"):
        return

    def select_without_kernel(*arguments: Any, **keywords: Any) -> Any:
        backend = select(*arguments, **keywords)
        without_kernel = _without_kernel(backend.get_impl_cls())
        backend.get_impl_cls = staticmethod(lambda: without_kernel)
        return backend

    select_without_kernel.__dict__["is_wrapped"] = True
    attention.get_attn_backend = select_without_kernel


@cache
def _nothing() -> Any:
    """A module without weights that takes any arguments."""
    base: Any = import_module("torch").nn.Module
    return type("Nothing", (base,), {"__init__": lambda self, *_, **__: base.__init__(self)})


def _without_kernel(implementation: Any) -> Any:
    """The class of an attention kernel with all that it says of itself, and no construction: layers ask while they are built."""
    if implementation.__name__ == "WithoutKernel":
        return implementation
    answers = {"__init__": lambda *_, **__: None, "supports_dense_mha_prefill": False, "index_group": None, "dcp_world_size": 1}
    return type("WithoutKernel", (implementation,), answers)


@contextmanager
def _on_meta_device(vllm_config: Any) -> Iterator[None]:
    """One rank of each group, the model's dtype, and every tensor on the meta device, whatever device the model code names."""
    torch = import_module("torch")
    parallel_state = import_module("vllm.distributed.parallel_state")
    parallel = vllm_config.parallel_config
    sizes = {
        "_TP": parallel.tensor_parallel_size,
        "_DCP": parallel.decode_context_parallel_size,
        "_PCP": parallel.prefill_context_parallel_size,
        "_PP": parallel.pipeline_parallel_size,
        "_DP": parallel.data_parallel_size,
        "_EP": parallel.data_parallel_size * parallel.tensor_parallel_size,
    }
    for name, size in sizes.items():
        setattr(parallel_state, name, FirstRank(size))

    set_current = import_module("vllm.config").set_current_vllm_config
    set_dtype = import_module("vllm.utils.torch_utils").set_default_torch_dtype
    with set_current(vllm_config), set_dtype(vllm_config.model_config.dtype), torch.device("meta"), _every_tensor_on_meta():
        yield


def _every_tensor_on_meta() -> Any:
    """Overrules the device that a call names; `torch.device("meta")` is for those that name none."""

    def redirect(_: Any, function: Any, __: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = dict(keywords or {})
        if keywords.get("device") is not None:
            keywords["device"] = "meta"
        return function(*arguments, **keywords)

    base: Any = import_module("torch.overrides").TorchFunctionMode
    return type("EveryTensorOnMeta", (base,), {"__torch_function__": redirect})()


class FirstRank:
    """Stands for a process group of `world_size` ranks, seen from its first."""

    rank = rank_in_group = local_rank = 0
    is_first_rank = is_last_rank = True

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.ranks = list(range(world_size))
