"""Command-line flags -> one engine to plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hisparse_runtime.capacity import (
    FLAG_NAMES,
    CapacityError,
    EngineRequest,
    VllmSettings,
    estimated_kv_bytes,
)
from hisparse_runtime.capacity.gpus import Gpu, gpu
from hisparse_runtime.capacity.weights import WeightBytes, read_weight_bytes
from hisparse_runtime.cli.plan.case import Asked, Case, RefusedError, known_geometry, reason_of
from hisparse_runtime.cli.plan.model import ModelFiles
from hisparse_runtime.geometry import (
    CacheFormatError,
    ModelConfigError,
    ModelGeometry,
    SparseMlaModel,
    UnknownVersionError,
    complete_config,
    read_model,
    vllm_version,
)

_USUAL_NODE_GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlags:
    """What was typed, with units resolved. None: not given. `max_model_len` may be AUTO.

    Without `tensor_parallel_size`, the replicas share the GPUs of a node.
    """

    files: ModelFiles
    gpu: str
    gpus_per_node: int | None
    gpu_kv_bytes: int | None
    gpu_memory_utilization: float
    kv_cache_dtype: str
    tensor_parallel_size: int | None
    data_parallel_size: int
    expert_parallel: bool
    max_model_len: int | str | None
    max_num_batched_tokens: int
    max_num_seqs: int
    num_speculative_tokens: int
    device_buffer_size: int | None
    async_scheduling: bool
    host_pool_bytes: int | None
    cpu_bytes_to_use: int | None
    node_memory_bytes: int | None
    vllm_version: str

    @property
    def num_node_gpus(self) -> int:
        if self.gpus_per_node is not None:
            return self.gpus_per_node
        try:
            return gpu(self.gpu).num_per_node
        except ValueError:
            # such a GPU is refused anyway, later and with its name
            return _USUAL_NODE_GPUS

    @property
    def num_ranks(self) -> int:
        """The tensor-parallel size."""
        return self.tensor_parallel_size or max(1, self.num_node_gpus // self.data_parallel_size)


def case_from_flags(flags: PlanFlags) -> Case:
    """Raises RefusedError for what cannot be planned, with the geometry where it is known by then."""
    asked = _asked(flags)
    with _refusing(asked):
        config, preset_fields = complete_config(flags.files.name, flags.files.config)
    asked = replace(asked, preset_fields=preset_fields)
    with _refusing(asked):
        model = read_model(config)
    longest = model.max_position_embeddings
    max_model_len = longest if flags.max_model_len is None else flags.max_model_len
    asked = replace(asked, max_model_len=None if isinstance(max_model_len, str) else max_model_len)
    with _refusing(asked, model):
        version = vllm_version(flags.vllm_version)
    device = _supported(flags.gpu, asked=asked, model=model)
    asked = replace(asked, gpu=device.name)
    with _refusing(asked, model):
        geometry = known_geometry(
            model,
            kv_cache_dtype=flags.kv_cache_dtype,
            capability=device.capability,
            version=version,
            num_speculative_tokens=flags.num_speculative_tokens,
        )
    num_node_replicas, placement = _placement(flags, asked=asked, geometry=geometry)
    weights, warnings = _weights(flags, config, asked=asked, geometry=geometry)
    gpu_weights_bytes = None
    if weights is not None:
        gpu_weights_bytes = weights.per_gpu_bytes(
            tensor_parallel_size=flags.num_ranks,
            data_parallel_size=flags.data_parallel_size,
            expert_parallel=flags.expert_parallel,
        )
    gpu_kv_bytes = flags.gpu_kv_bytes
    if gpu_kv_bytes is None:
        assert gpu_weights_bytes is not None
        with _refusing(asked, model, geometry):
            gpu_kv_bytes = estimated_kv_bytes(
                device, weights_bytes=gpu_weights_bytes, gpu_memory_utilization=flags.gpu_memory_utilization
            )
    return Case(
        asked=asked,
        names=FLAG_NAMES,
        request=EngineRequest(
            model=model,
            settings=VllmSettings(
                version=version,
                capability=device.capability,
                gpu_kv_bytes=gpu_kv_bytes,
                max_model_len=asked.max_model_len,
                max_num_batched_tokens=flags.max_num_batched_tokens,
                max_num_seqs=flags.max_num_seqs,
                kv_cache_dtype=flags.kv_cache_dtype,
                num_speculative_tokens=flags.num_speculative_tokens,
                device_buffer_size=flags.device_buffer_size,
                async_scheduling=flags.async_scheduling,
                tensor_parallel_size=flags.num_ranks,
                # a pod has what one node has; weights are split over all nodes
                data_parallel_size=num_node_replicas,
            ),
            gpu=device,
            weights_bytes=None if weights is None else weights.total_bytes,
            host_pool_bytes=flags.host_pool_bytes,
            cpu_bytes_to_use=flags.cpu_bytes_to_use,
            budget_bytes=flags.node_memory_bytes,
        ),
        weights=weights,
        gpu_weights_bytes=gpu_weights_bytes,
        gpu_memory_utilization=flags.gpu_memory_utilization if flags.gpu_kv_bytes is None else None,
        warnings=(*placement, *warnings),
    )


def _asked(flags: PlanFlags) -> Asked:
    return Asked(
        engine="VLLM",
        model=flags.files.name,
        preset_fields=(),
        gpu=flags.gpu,
        num_gpus=flags.num_ranks * flags.data_parallel_size,
        vllm_version=flags.vllm_version,
        kv_cache_dtype=flags.kv_cache_dtype,
        tensor_parallel_size=flags.num_ranks,
        data_parallel_size=flags.data_parallel_size,
        max_model_len=flags.max_model_len if isinstance(flags.max_model_len, int) else None,
        max_num_batched_tokens=flags.max_num_batched_tokens,
        max_num_seqs=flags.max_num_seqs,
        num_speculative_tokens=flags.num_speculative_tokens,
        expert_parallel=flags.expert_parallel,
        async_scheduling=flags.async_scheduling,
    )


@contextmanager
def _refusing(asked: Asked, model: SparseMlaModel | None = None, geometry: ModelGeometry | None = None) -> Iterator[None]:
    try:
        yield
    except (CacheFormatError, CapacityError, ModelConfigError, UnknownVersionError) as error:
        raise RefusedError(reason_of(error), str(error), asked=asked, model=model, geometry=geometry) from error


def _supported(name: str, *, asked: Asked, model: SparseMlaModel) -> Gpu:
    try:
        device = gpu(name)
    except ValueError as error:
        raise RefusedError("InvalidSpec", f"--gpu: {error}", asked=asked, model=model) from error
    if not device.supported:
        raise RefusedError("InvalidSpec", f"--gpu {device.name}: {device.note}", asked=asked, model=model)
    return device


def _placement(flags: PlanFlags, *, asked: Asked, geometry: ModelGeometry) -> tuple[int, tuple[str, ...]]:
    """Data-parallel replicas on one node, and what to know about it."""
    ranks, replicas, node_gpus = flags.num_ranks, flags.data_parallel_size, flags.num_node_gpus
    if ranks > node_gpus:
        raise RefusedError(
            "InvalidSpec",
            f"--tensor-parallel-size {ranks} needs more GPUs than the {node_gpus} of one node (--gpus-per-node): a replica that"
            f" spans nodes is not planned; lower it to at most {node_gpus} and raise --data-parallel-size",
            asked=asked,
            model=geometry.model,
            geometry=geometry,
        )
    node_replicas = min(replicas, node_gpus // ranks)
    if node_replicas == replicas:
        return replicas, ()
    nodes = -(-replicas // node_replicas)
    warning = (
        f"{replicas} data-parallel replicas of {_gpus(ranks)} take {nodes} nodes of {_gpus(node_gpus)}: sizes of the pod are"
        f" those of one node with {node_replicas} of them"
    )
    return node_replicas, (warning,)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _weights(
    flags: PlanFlags, config: dict[str, object], *, asked: Asked, geometry: ModelGeometry
) -> tuple[WeightBytes | None, tuple[str, ...]]:
    """With KV memory given, weights only count for the start-up budget: then it can do without them."""
    try:
        weights = read_weight_bytes(config, is_speculative=flags.num_speculative_tokens > 0, index=flags.files.index)
    except ModelConfigError as error:
        if flags.gpu_kv_bytes is None:
            message = f"{error}; with --gpu-kv-gib they are not needed"
            raise RefusedError(reason_of(error), message, asked=asked, model=geometry.model, geometry=geometry) from error
        return None, (f"weights are not counted: {error}",)
    return weights, ()
