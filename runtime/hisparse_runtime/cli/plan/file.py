"""A HiSparseDeployment file -> one engine to plan, with the operator's own models and mapping.

The only module of the runtime, beside `cli.crd`, that may import the operator; imported when a file is given.
"""

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from hisparse_operator.api import API_VERSION, KIND, EngineType, HiSparseDeploymentSpec, quantity_bytes
from hisparse_operator.planning import Infeasible, NodeFacts, Plan, plan
from hisparse_operator.planning.demand import Demand, demand
from hisparse_operator.planning.vllm_request import vllm_request
from hisparse_runtime.capacity import SPEC_NAMES, CapacityError, EngineRequest, human_bytes
from hisparse_runtime.capacity.gpus import gpu
from hisparse_runtime.capacity.weights import WeightBytes, read_weight_bytes
from hisparse_runtime.cli.plan.answer import (
    Answer,
    GpuSection,
    HostSection,
    HotSection,
    OffloadSection,
    PodSection,
    geometry_section,
)
from hisparse_runtime.cli.plan.case import Asked, Case, RefusedError, known_geometry, reason_of
from hisparse_runtime.cli.plan.units import MOST_BYTES
from hisparse_runtime.geometry import (
    NEWEST_VERSION,
    CacheFormatError,
    ModelConfigError,
    ModelGeometry,
    SparseMlaModel,
    complete_config,
    embedded_geometry,
    read_model,
    vllm_version,
)
from hisparse_runtime.vllm.pod_plan import Mode

_STANDARD_INPUT = Path("-")


class DeploymentFileError(ValueError):
    """The file holds no HiSparseDeployment that can be read; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    name: str
    spec: HiSparseDeploymentSpec

    @property
    def is_embedded(self) -> bool:
        return self.spec.engine.type is EngineType.EMBEDDED


def read_deployment(path: Path) -> Deployment:
    """The one HiSparseDeployment among the file's YAML documents; `-` is standard input. Raises DeploymentFileError."""
    try:
        text = sys.stdin.read() if path == _STANDARD_INPUT else path.read_text(encoding="utf-8")
        documents = list(yaml.safe_load_all(text))
    except OSError as error:
        raise DeploymentFileError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise DeploymentFileError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    found = [document for document in documents if isinstance(document, dict) and document.get("kind") == KIND]
    if len(found) != 1:
        raise DeploymentFileError(f"{path} holds {len(found)} objects of kind {KIND}: one is needed, of {API_VERSION}")
    return _parse(found[0], path=path)


def deployment_case(
    deployment: Deployment, *, node_memory_bytes: int | None, gpu_name: str | None = None, max_model_len: int | None = None
) -> Case:
    """For type VLLM, perhaps with another kind of GPU or context length than the file has. Raises RefusedError."""
    spec = _changed(deployment.spec, gpu_name=gpu_name, max_model_len=max_model_len)
    vllm = spec.engine.vllm
    assert vllm is not None
    asked = _asked(spec)
    if spec.hi_sparse.mode is Mode.OFF:
        off = "hiSparse.mode is Off, and only HiSparse is planned here: set it to On for what it would give"
        raise RefusedError("ModeOff", off, asked=asked)
    try:
        request = vllm_request(spec)
    except (Infeasible, CacheFormatError, CapacityError, ModelConfigError) as error:
        reason = error.reason.value if isinstance(error, Infeasible) else reason_of(error)
        model, geometry = _known(spec)
        raise RefusedError(reason, str(error), asked=asked, model=model, geometry=geometry) from error
    weights = _weights(spec)
    return Case(
        asked=asked,
        names=SPEC_NAMES,
        request=_bounded(request, spec, node_memory_bytes=node_memory_bytes),
        weights=weights,
        gpu_weights_bytes=None
        if weights is None
        else weights.per_gpu_bytes(
            tensor_parallel_size=vllm.tensor_parallel_size,
            data_parallel_size=vllm.data_parallel_size,
            expert_parallel=vllm.expert_parallel,
        ),
        gpu_memory_utilization=vllm.gpu_memory_utilization if spec.engine.gpu_kv_cache is None else None,
    )


def embedded_answer(deployment: Deployment, *, node_memory_bytes: int | None) -> Answer:
    """For type Embedded: the operator's plan for a node that has just this memory for one pod."""
    spec = deployment.spec.model_copy(update={"replicas": 1})
    asked = _asked(spec)
    try:
        geometry = embedded_geometry(spec.model.config)
    except ModelConfigError as error:
        raise RefusedError(reason_of(error), f"spec.model.config: {error}", asked=asked) from error
    warnings: tuple[str, ...] = ()
    try:
        wanted = demand(spec)
        assert isinstance(wanted, Demand)
        if node_memory_bytes is None:
            smallest_bytes = wanted.smallest.memory_bytes
            node_memory_bytes = smallest_bytes if spec.host_memory.max is None else _host_memory_max_bytes(spec.host_memory.max)
            if spec.host_memory.max is None:
                smallest = human_bytes(smallest_bytes)
                warnings = (
                    f"the smallest pod, {smallest}: give --node-memory, or hostMemory.max in the file, for what a node has left",
                )
        node = NodeFacts(
            name="(as given)",
            ready=True,
            unschedulable=False,
            labels=tuple(spec.node_selector.items()),
            taints=(),
            allocatable_memory_bytes=node_memory_bytes,
            allocatable_gpus=spec.engine.pod_gpus,
        )
        made = plan(spec, deployment=deployment.name, nodes=[node], pods=[])
    except Infeasible as error:
        raise RefusedError(error.reason.value, error.message, asked=asked, geometry=geometry) from error
    return _embedded(made, geometry, asked=asked, min_host_blocks=wanted.tiers.min_host_blocks, warnings=warnings)


def _parse(document: dict[str, Any], *, path: Path) -> Deployment:
    if document.get("apiVersion") != API_VERSION:
        raise DeploymentFileError(f"{path}: apiVersion is {document.get('apiVersion')!r}, {API_VERSION} is needed")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    try:
        spec = HiSparseDeploymentSpec.model_validate(document.get("spec") or {})
    except ValidationError as error:
        faults = [
            f"spec.{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors(include_url=False)
        ]
        raise DeploymentFileError(f"{path}: {'; '.join(faults)}") from error
    return Deployment(name=str(name or path.stem), spec=spec)


def _changed(spec: HiSparseDeploymentSpec, *, gpu_name: str | None, max_model_len: int | None) -> HiSparseDeploymentSpec:
    engine, vllm = spec.engine, spec.engine.vllm
    assert vllm is not None
    if gpu_name is not None:
        engine = engine.model_copy(update={"vllm": vllm.model_copy(update={"gpu": gpu_name})})
    if max_model_len is not None:
        engine = engine.model_copy(update={"max_model_len": max_model_len})
    return spec.model_copy(update={"engine": engine})


def _asked(spec: HiSparseDeploymentSpec) -> Asked:
    engine, vllm = spec.engine, spec.engine.vllm
    try:
        _, preset_fields = complete_config(spec.model.name, spec.model.config)
    except ModelConfigError:
        preset_fields = ()
    return Asked(
        engine=engine.type.value,
        model=spec.model.name,
        preset_fields=preset_fields if vllm else (),
        gpu=vllm.gpu if vllm else None,
        num_gpus=engine.pod_gpus,
        vllm_version=(vllm.version or NEWEST_VERSION.name) if vllm else None,
        kv_cache_dtype=vllm.kv_cache_dtype if vllm else None,
        tensor_parallel_size=vllm.tensor_parallel_size if vllm else 1,
        data_parallel_size=vllm.data_parallel_size if vllm else 1,
        max_model_len=engine.max_model_len,
        max_num_batched_tokens=engine.num_batched_tokens,
        max_num_seqs=engine.num_seqs,
        num_speculative_tokens=vllm.num_speculative_tokens if vllm else 0,
        expert_parallel=vllm.expert_parallel if vllm else None,
        async_scheduling=vllm.async_scheduling if vllm else None,
    )


def _bounded(request: EngineRequest, spec: HiSparseDeploymentSpec, *, node_memory_bytes: int | None) -> EngineRequest:
    bounds = [] if node_memory_bytes is None else [node_memory_bytes]
    if spec.host_memory.max is not None:
        bounds.append(_host_memory_max_bytes(spec.host_memory.max))
    return replace(request, budget_bytes=min(bounds, default=None))


def _host_memory_max_bytes(quantity: int | str) -> int:
    """The operator compares it with what a node has; here it may be the only bound, and is counted in blocks."""
    return min(quantity_bytes(quantity), MOST_BYTES)


def _weights(spec: HiSparseDeploymentSpec) -> WeightBytes | None:
    """Those that the request was made with, in parts; None where KV memory is given and they cannot be counted."""
    vllm = spec.engine.vllm
    assert vllm is not None
    config, _ = complete_config(spec.model.name, spec.model.config)
    try:
        return read_weight_bytes(config, is_speculative=vllm.num_speculative_tokens > 0)
    except ModelConfigError:
        return None


def _known(spec: HiSparseDeploymentSpec) -> tuple[SparseMlaModel | None, ModelGeometry | None]:
    """The model and its geometry, as far as they do not depend on what is wrong."""
    vllm = spec.engine.vllm
    assert vllm is not None
    # what is wrong has been told already, with more words
    model = None
    with suppress(ValueError):
        config, _ = complete_config(spec.model.name, spec.model.config)
        model = read_model(config)
        device = gpu(vllm.gpu)
        if device.supported:
            return model, known_geometry(
                model,
                kv_cache_dtype=vllm.kv_cache_dtype,
                capability=device.capability,
                version=vllm_version(vllm.version or NEWEST_VERSION.name),
                num_speculative_tokens=vllm.num_speculative_tokens,
            )
    return model, None


def _embedded(made: Plan, geometry: ModelGeometry, *, asked: Asked, min_host_blocks: int, warnings: tuple[str, ...]) -> Answer:
    hot_blocks = geometry.pages(made.device_buffer_rows)
    offload_blocks = made.cpu_bytes_to_use // geometry.indexer_page_bytes
    return Answer(
        asked=asked,
        geometry=geometry_section(geometry),
        gpu=GpuSection(
            bytes_per_block=geometry.device_block_bytes,
            num_blocks=made.gpu_kv_bytes // geometry.device_block_bytes,
            kv_bytes=made.gpu_kv_bytes,
            is_estimated=False,
            overhead_bytes=None,
        ),
        host=HostSection(
            stride_bytes=geometry.host_page_bytes,
            num_blocks=made.host_pool_bytes // geometry.host_page_bytes,
            pool_bytes=made.host_pool_bytes,
            pool_gib=made.host_pool_gib,
            mode="shared",
            min_blocks=min_host_blocks,
            tokens=made.host_pool_tokens,
            usable_bytes=None,
        ),
        hot=HotSection(
            rows=made.device_buffer_rows,
            blocks_per_request=hot_blocks,
            bytes_per_request=hot_blocks * geometry.device_block_bytes,
        ),
        offload=OffloadSection(
            cpu_bytes_to_use=made.cpu_bytes_to_use,
            bytes_per_token=geometry.indexer_page_bytes / geometry.page_tokens,
            tokens=offload_blocks * geometry.page_tokens,
        ),
        concurrency=None,
        pod=PodSection(
            num_replicas=1,
            shm_bytes=made.shm_bytes,
            memory_bytes=made.memory_bytes,
            startup_seconds=made.startup_seconds,
            termination_seconds=made.termination_seconds,
        ),
        warnings=(*warnings, *made.warnings),
        arithmetic=made.arithmetic,
    )
