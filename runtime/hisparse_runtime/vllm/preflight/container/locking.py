"""Whether memory can be locked and filled at once: the kernel is asked, since limits and versions do not tell.

mlock2 with ONFAULT counts a range against the limit without a page of it being there: the question costs no memory.
"""

import ctypes
import errno
import mmap
import os
import resource
from dataclasses import dataclass

from hisparse_runtime.capacity import MIB

# More than the 8 MiB that container runtimes leave.
_LEAST_TRIED_BYTES = 16 * MIB
_MAP_NORESERVE = 0x4000
_MLOCK_ONFAULT = 1
_MADV_POPULATE_WRITE = 23  # Linux 5.14; the number of all architectures


@dataclass(frozen=True, slots=True, kw_only=True)
class Memlock:
    """`limit_bytes`: RLIMIT_MEMLOCK, None without. `error`: the kernel's answer to `tried_bytes`, None where it took them."""

    limit_bytes: int | None
    tried_bytes: int
    error: str | None


def try_memlock(needed_bytes: int) -> Memlock:
    """Tries just more than the limit where that is below `needed_bytes`: a process with IPC_LOCK may, others may not."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit_bytes = None if soft == resource.RLIM_INFINITY else soft
    is_below = limit_bytes is not None and limit_bytes < needed_bytes
    tried_bytes = (limit_bytes or 0) + _LEAST_TRIED_BYTES if is_below else _LEAST_TRIED_BYTES
    return Memlock(limit_bytes=limit_bytes, tried_bytes=tried_bytes, error=_lock_error(tried_bytes))


def can_populate() -> bool:
    """Whether the kernel fills a range in one call; without, vLLM touches page after page."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        try:
            page.madvise(_MADV_POPULATE_WRITE)
        except OSError:
            return False
    return True


def _lock_error(size_bytes: int) -> str | None:
    library = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE) as region:
        first = ctypes.c_char.from_buffer(region)
        result = library.mlock2(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size_bytes), _MLOCK_ONFAULT)
        number = ctypes.get_errno()
        # the mapping cannot be closed while something points into it
        del first
    return None if result == 0 else f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
