"""Makes vLLM plan for GPUs that are not there: its own CUDA platform, with the few questions to a driver answered from a table.

Nothing runs on a device. Answers are those of an engine image in which every kernel package is installed.
"""

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

# Compiled extensions that are imported for their side effect only.
COMPILED = ("vllm._C_stable_libtorch", "vllm._C", "vllm._moe_C", "vllm._moe_C_stable_libtorch")
FLASHINFER_QUESTIONS = ("has_flashinfer", "has_flashinfer_sm90_nope_mla", "has_flashinfer_sparse_mla_sm120")
FLASH_ATTENTION_OF_CAPABILITY = {9: (2, 3), 10: (2, 4), 12: (2,)}  # as vLLM's own check says on these GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What planning asks about one GPU model."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    num_multiprocessors: int


GPUS = {
    "H200": Gpu(name="NVIDIA H200", capability=(9, 0), memory_bytes=150_754_820_096, num_multiprocessors=132),
    "B200": Gpu(name="NVIDIA B200", capability=(10, 0), memory_bytes=191_514_738_688, num_multiprocessors=148),
    "RTX_PRO_6000": Gpu(
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        capability=(12, 0),
        memory_bytes=101_971_525_632,
        num_multiprocessors=188,
    ),
}


class Machine:
    """The GPUs of this process. None until a case has chosen one: an import that asks before that would freeze the answer."""

    gpu: Gpu | None = None
    num_gpus: int = 8

    @classmethod
    def chosen(cls) -> Gpu:
        if cls.gpu is None:
            raise RuntimeError("a module asks for the GPU while it is imported: its answer would hold for every GPU")
        return cls.gpu


def install() -> None:
    """Call before anything else of vLLM is imported. `Machine.gpu` is chosen later, once per process."""
    for name in COMPILED:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm.vllm_flash_attn"] = flash_attention = _Anything("vllm.vllm_flash_attn")
    for child in ("flash_attn_interface", "cute", "cute.interface", "cute.utils", "layers", "layers.rotary"):
        sys.modules[f"vllm.vllm_flash_attn.{child}"] = _Anything(f"vllm.vllm_flash_attn.{child}")
    interface = sys.modules["vllm.vllm_flash_attn.flash_attn_interface"]
    interface.__dict__["is_fa_version_supported"] = _is_flash_attention_supported
    interface.__dict__["fa_version_unsupported_reason"] = lambda version: f"FlashAttention {version} is not for this GPU"
    flash_attention.__dict__["flash_attn_interface"] = interface

    import_module("vllm.platforms").__dict__["_current_platform"] = _platform()
    import_module("torch").cuda.device_count = lambda: Machine.num_gpus
    _answer_for_triton()
    _answer_for_compiled_operators()
    import_module("vllm.model_executor.models.registry").__dict__["_try_inspect_model_cls"] = _inspect_model


class _Anything(types.ModuleType):
    """A module in which every public name is a function that must not be called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # a package, so that its children can be imported

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_: object, **__: object) -> None:
            raise RuntimeError(f"{self.__name__}.{name} was called while planning")

        return absent


def _is_flash_attention_supported(version: int) -> bool:
    return version in FLASH_ATTENTION_OF_CAPABILITY[Machine.chosen().capability[0]]


def _platform() -> Any:
    """An instance of vLLM's platform for CUDA without NVML."""
    cuda = import_module("vllm.platforms.cuda")
    capability = import_module("vllm.platforms.interface").DeviceCapability
    answers: dict[str, Callable[..., Any]] = {
        "get_device_capability": lambda *_, **__: capability(*Machine.chosen().capability),
        "get_device_name": lambda *_, **__: Machine.chosen().name,
        "get_device_total_memory": lambda *_, **__: Machine.chosen().memory_bytes,
        "num_compute_units": lambda *_, **__: Machine.chosen().num_multiprocessors,
        "device_count": lambda *_, **__: Machine.num_gpus,
        "import_kernels": lambda *_, **__: None,
        "import_ir_kernels": lambda *_, **__: None,
    }
    base = cuda.NonNvmlCudaPlatform
    members = {name: classmethod(answer) for name, answer in answers.items() if hasattr(base, name)}
    return type("PlanningPlatform", (base,), members)()


def _answer_for_triton() -> None:
    """Triton has no CPU backend: vLLM's stand-in lacks a class that a module filters by, and model runner V2 asks for Triton."""
    triton_utils = import_module("vllm.triton_utils")

    class Config:
        def __init__(self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 2, **_: object) -> None:
            self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages

    triton_utils.triton.Config = Config
    import_module("vllm.config.vllm").__dict__["HAS_TRITON"] = True


def _answer_for_compiled_operators() -> None:
    """What layers look up while they are built, and questions at import about quantised linear layers."""
    import_module("torch").library.define("_C::silu_and_mul_with_clamp", "(Tensor! result, Tensor input, float limit) -> ()")
    operators = import_module("vllm._custom_ops")
    for name in dir(operators):
        if "support" in name and callable(getattr(operators, name)):
            setattr(operators, name, lambda *_, **__: False)


@contextmanager
def flashinfer_installed() -> Iterator[None]:
    """While a backend is selected. Not while the configuration is made: compilation passes would want the compiled operators."""
    flashinfer = import_module("vllm.utils.flashinfer")
    names = [name for name in FLASHINFER_QUESTIONS if hasattr(flashinfer, name)]
    before = {name: getattr(flashinfer, name) for name in names}
    try:
        for name in names:
            setattr(flashinfer, name, lambda: True)
        yield
    finally:
        for name, function in before.items():
            setattr(flashinfer, name, function)


def _inspect_model(_: str, model: Any) -> Any:
    """vLLM finds out about a model class in a process of its own, which would see no GPU."""
    return import_module("vllm.model_executor.models.registry")._ModelInfo.from_model_cls(model.load_model_cls())
