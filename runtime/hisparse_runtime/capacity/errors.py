"""Sizes that cannot work, and the names under which their reader gave them."""

from dataclasses import dataclass


class CapacityError(ValueError):
    """The sizes cannot work. `reason` is stable, for programs; the text has the numbers and the next step."""

    reason = "InsufficientMemory"


class HostMemoryError(CapacityError):
    """The host pool, or the memory it comes from, is too small."""

    reason = "InsufficientHostMemory"


class DeviceMemoryError(CapacityError):
    """The device pool is too small."""

    reason = "InsufficientDeviceMemory"


class SettingsError(CapacityError):
    """A setting is outside of what the engine accepts, whatever memory there is."""

    reason = "InvalidSpec"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNames:
    """How errors call a setting: a reader is told to change what he wrote."""

    host_pool_gib: str
    max_model_len: str
    gpu_kv: str
    device_buffer_size: str
    num_speculative_tokens: str
    max_num_batched_tokens: str


SPEC_NAMES = FieldNames(
    host_pool_gib="hiSparse.hostPoolGiB",
    max_model_len="engine.maxModelLen",
    gpu_kv="engine.gpuKVCache",
    device_buffer_size="engine.deviceBufferSize",
    num_speculative_tokens="engine.vllm.numSpeculativeTokens",
    max_num_batched_tokens="engine.maxNumBatchedTokens",
)
FLAG_NAMES = FieldNames(
    host_pool_gib="--host-pool-gib",
    max_model_len="--max-model-len",
    gpu_kv="--gpu-kv-gib",
    device_buffer_size="--device-buffer-size",
    num_speculative_tokens="--num-speculative-tokens",
    max_num_batched_tokens="--max-num-batched-tokens",
)
