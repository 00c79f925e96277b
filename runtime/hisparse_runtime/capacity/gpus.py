"""GPUs by name: memory, capability and shared memory per block, and whether a released vLLM runs HiSparse on them.

`memory_bytes` is the decimal number of the data sheet, because the published calculator counts with it (H200: 141 GB, which are
131.3 GiB). CUDA reports another: `visible_memory_bytes` is the total in vLLM's start-up line "Free memory on device", to 0.01 GiB
(H200: 139.8 GiB), as people's logs show it. It is that one which `gpu_memory_utilization` is a share of.
"""

from dataclasses import dataclass

from hisparse_runtime.capacity.errors import SettingsError
from hisparse_runtime.capacity.units import GIB, KIB, human_bytes

_GB = 10**9

# Largest dynamic shared memory of one block after opting in, by compute capability (CUDA tuning guides for Hopper, Blackwell).
_SHARED_DATA_CENTER = 227 * KIB
_SHARED_SM120 = 99 * KIB
# AMD: local data share of a work-group on CDNA 3 and CDNA 4.
_SHARED_CDNA3 = 64 * KIB
_SHARED_CDNA4 = 160 * KIB

_ROCM_NOTE = "released vLLM refuses HiSparse on it: the check at start-up asks for NVIDIA CUDA, the ROCm port is not merged"
# Hot slots are numbered by 16-bit integers.
_MAX_DEVICE_BUFFER_ROWS = 32_768
# A size that is not whole pages wastes the rest of the last page.
_BUFFER_STEP_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One kind of GPU. `supported` says whether a released vLLM serves HiSparse on it, `note` why not, or what to mind.

    `capability` is what torch reports: SM number on NVIDIA, gfx number on AMD. `num_per_node` is the usual server's.
    """

    name: str
    memory_bytes: int
    visible_memory_bytes: int
    capability: tuple[int, int]
    shared_memory_per_block_optin_bytes: int
    supported: bool
    note: str
    num_per_node: int


def gpu(name: str) -> Gpu:
    """The GPU of this name: short (`H200`) or as a node label has it (`NVIDIA-H200`); case, dashes and blanks do not matter.

    Raises ValueError listing the known names; also for a slice of a GPU (MIG, time-slicing), since an engine needs whole ones.
    """
    key = _key(name)
    for known, labels in _LABELS.items():
        if key in labels:
            return _GPUS[known]
    listed = ", ".join(_GPUS)
    if any(key.startswith(label) and ("mig" in key or key.endswith("shared")) for labels in _LABELS.values() for label in labels):
        raise ValueError(f"GPU {name!r} is a slice of one (MIG or time-slicing): HiSparse needs whole GPUs, known are {listed}")
    raise ValueError(f"GPU {name!r} is not known: use one of {listed}")


def known_gpus() -> tuple[Gpu, ...]:
    """All GPUs of the table."""
    return tuple(_GPUS.values())


def resolver_shared_memory_bytes(*, num_speculative_tokens: int, topk_rows: int, device_buffer_rows: int) -> int:
    """Shared memory that one block of the residency resolver needs.

    As vLLM checks it (vllm/v1/hisparse/runtime.py, 0.31 and later): a hash of keys and values over the rows that a request's
    decode queries may pick, with one empty slot; two offsets and a word of done bits for every 32 buffer rows, and seven words
    beside them; a 16-bit LRU entry for every buffer row.
    """
    union_rows = (1 + num_speculative_tokens) * topk_rows
    num_chunks = -(-device_buffer_rows // 32)
    return 4 * (2 * (union_rows + 1) + 3 * num_chunks + 7) + 2 * device_buffer_rows


def check_resolver_shared_memory(gpu: Gpu, *, num_speculative_tokens: int, topk_rows: int, device_buffer_rows: int) -> None:
    """Raises SettingsError when the resolver needs more shared memory per block than the GPU allows.

    The text has both numbers and what would fit: a smaller device_buffer_size, fewer speculative tokens.
    """
    available_bytes = gpu.shared_memory_per_block_optin_bytes
    needed_bytes = resolver_shared_memory_bytes(
        num_speculative_tokens=num_speculative_tokens, topk_rows=topk_rows, device_buffer_rows=device_buffer_rows
    )
    if needed_bytes <= available_bytes:
        return
    ways: list[str] = []
    rows = _largest_buffer_rows(available_bytes, num_speculative_tokens=num_speculative_tokens, topk_rows=topk_rows)
    if rows is not None:
        ways.append(f"device_buffer_size to at most {rows:,}")
    fewer = _most_speculative_tokens(available_bytes, below=num_speculative_tokens, topk_rows=topk_rows)
    if fewer is not None:
        buffer_rows = (fewer + 2) * topk_rows
        ways.append(f"num_speculative_tokens to {fewer} with device_buffer_size {buffer_rows:,}")
    next_step = f"lower {' or '.join(ways)}" if ways else f"no setting fits a top-K of {topk_rows:,} rows, use another GPU"
    raise SettingsError(
        f"the residency resolver needs {needed_bytes:,} B of shared memory per block for device_buffer_size"
        f" {device_buffer_rows:,} and {num_speculative_tokens} speculative tokens (top-K of {topk_rows:,} rows); {gpu.name}"
        f" allows {available_bytes:,} B ({human_bytes(available_bytes)}): {next_step}"
    )


def _largest_buffer_rows(available_bytes: int, *, num_speculative_tokens: int, topk_rows: int) -> int | None:
    """Whole pages of hot rows, at least what every decode query's top-K needs at once; None when not even these fit."""
    least_rows = -(-(1 + num_speculative_tokens) * topk_rows // _BUFFER_STEP_ROWS) * _BUFFER_STEP_ROWS
    sizes = range(_MAX_DEVICE_BUFFER_ROWS, least_rows - 1, -_BUFFER_STEP_ROWS)
    for rows in sizes:
        needed_bytes = resolver_shared_memory_bytes(
            num_speculative_tokens=num_speculative_tokens, topk_rows=topk_rows, device_buffer_rows=rows
        )
        if needed_bytes <= available_bytes:
            return rows
    return None


def _most_speculative_tokens(available_bytes: int, *, below: int, topk_rows: int) -> int | None:
    """With vLLM's default buffer, which grows with speculation; None when there is no smaller number, or none that fits."""
    most = min(below - 1, _MAX_DEVICE_BUFFER_ROWS // topk_rows - 2)
    for tokens in range(most, -1, -1):
        needed_bytes = resolver_shared_memory_bytes(
            num_speculative_tokens=tokens, topk_rows=topk_rows, device_buffer_rows=(tokens + 2) * topk_rows
        )
        if needed_bytes <= available_bytes:
            return tokens
    return None


def _key(name: str) -> str:
    key = "".join(letter for letter in name.casefold() if letter.isalnum())
    for vendor in ("nvidia", "amd", "instinct"):
        key = key.removeprefix(vendor)
    return key


_GPUS = {
    entry.name: entry
    for entry in (
        Gpu(
            name="H100",
            memory_bytes=80 * _GB,
            visible_memory_bytes=round(79.18 * GIB),
            capability=(9, 0),
            shared_memory_per_block_optin_bytes=_SHARED_DATA_CENTER,
            supported=True,
            note="",
            num_per_node=8,
        ),
        Gpu(
            name="H200",
            memory_bytes=141 * _GB,
            visible_memory_bytes=round(139.80 * GIB),
            capability=(9, 0),
            shared_memory_per_block_optin_bytes=_SHARED_DATA_CENTER,
            supported=True,
            note="",
            num_per_node=8,
        ),
        Gpu(
            name="B200",
            memory_bytes=180 * _GB,
            visible_memory_bytes=round(178.35 * GIB),
            capability=(10, 0),
            shared_memory_per_block_optin_bytes=_SHARED_DATA_CENTER,
            supported=True,
            note="",
            num_per_node=8,
        ),
        Gpu(
            name="B300",
            memory_bytes=288 * _GB,
            visible_memory_bytes=round(267.69 * GIB),
            capability=(10, 3),
            shared_memory_per_block_optin_bytes=_SHARED_DATA_CENTER,
            supported=True,
            note="the driver shows less than the data sheet: 275,040 MiB of 288 GB",
            num_per_node=8,
        ),
        Gpu(
            name="RTX-PRO-6000",
            memory_bytes=96 * _GB,
            visible_memory_bytes=round(94.97 * GIB),
            capability=(12, 0),
            shared_memory_per_block_optin_bytes=_SHARED_SM120,
            supported=True,
            note="at a top-K of 2,048 rows the resolver fits with up to three speculative tokens",
            num_per_node=8,
        ),
        Gpu(
            name="MI300X",
            memory_bytes=192 * _GB,
            visible_memory_bytes=round(191.98 * GIB),
            capability=(9, 4),
            shared_memory_per_block_optin_bytes=_SHARED_CDNA3,
            supported=False,
            note=_ROCM_NOTE,
            num_per_node=8,
        ),
        Gpu(
            name="MI355X",
            memory_bytes=288 * _GB,
            visible_memory_bytes=round(287.98 * GIB),
            capability=(9, 5),
            shared_memory_per_block_optin_bytes=_SHARED_CDNA4,
            supported=False,
            note=_ROCM_NOTE,
            num_per_node=8,
        ),
    )
}

# What device plugins and people call them, as `_key` leaves it. Neighbours in name are other GPUs: H100-NVL, GB200, RTX-6000-Ada.
_LABELS = {
    "H100": ("h100", "h10080gb", "h10080gbhbm3", "h100sxm", "h100pcie"),
    "H200": ("h200", "h200sxm", "h200nvl"),
    "B200": ("b200", "b200sxm"),
    "B300": ("b300", "b300sxm", "b300sxm6ac"),
    "RTX-PRO-6000": (
        "rtxpro6000",
        "rtxpro6000blackwell",
        "rtxpro6000blackwellserveredition",
        "rtxpro6000blackwellworkstationedition",
        "rtxpro6000blackwellmaxqworkstationedition",
    ),
    "MI300X": ("mi300x", "mi300xoam"),
    "MI355X": ("mi355x", "mi355xoam"),
}
