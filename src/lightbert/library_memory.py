"""Checks that NumPy and PyTorch fit into a limited address space: otherwise they abort instead of raising an error."""

import ctypes
import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from lightbert import memory

# Of NumPy and tokenizers with all buffers of one thread, and of each further thread for linear algebra.
_NUMPY = 96 << 20
_THREAD = 41 << 20
# Of PyTorch beside the size of its libraries.
_TORCH = 128 << 20
_MOST_THREADS = 64
# The option of glibc's mallopt, from malloc.h.
_M_ARENA_MAX = -8


def check(command: str) -> None:
    """Raise an error if the libraries of a command don't fit into the address space.

    `prepare` uses no linear algebra, and needs no threads for it. Its other threads share one heap.
    """
    if memory.address_space_limit() is None or command == "recipes":
        return
    if command == "prepare":
        _use_one_heap()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        memory.check_room(_NUMPY, "loading NumPy and tokenizers")
    else:
        memory.check_room(_NUMPY + (_threads() - 1) * _THREAD + _TORCH + _torch_libraries(), "loading PyTorch")


def _use_one_heap() -> None:
    """Let the threads of this process share the heap; glibc reserves 64 MiB of addresses for each other one."""
    # Not there in other C libraries.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _threads() -> int:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name, "").isdigit():
            return max(1, int(os.environ[name]))
    return min(_MOST_THREADS, os.cpu_count() or 1)


def _torch_libraries() -> int:
    """Return the size of the files that are mapped into memory; the package is not imported."""
    found = find_spec("torch")
    folder = Path(found.origin).parent / "lib" if found is not None and found.origin is not None else Path()
    return sum(path.stat().st_size for path in folder.glob("*.so*")) if found is not None else 0
