"""Errors of the host and the GPU when memory runs out, as one sentence: what was asked for, what there is."""

import errno
import mmap
import os
import re
import sys

from lightbert.errors import InputError

# Imported at once: there may be no memory for it when it is needed.
if sys.platform != "win32":
    import resource

_ASKED = re.compile(
    r"([Tt]ried to allocate|Unable to allocate|memory allocation of) (\d[\d.]*) ?(?:bytes|([KMGTPE])i?B)?"
)
_UNITS = " KMGTPE"
# The messages of the dynamic linker, of threads, and of the allocators of PyTorch, Rust and C++.
_SIGNS = re.compile(
    r"failed to map segment|cannot allocate|cannot create .* descriptor|cannot map zero-fill|can't start new thread"
    r"|DefaultCPUAllocator|memory allocation (of|still failed)|MemoryError|bad_alloc|ThreadPoolBuildError"
    r"|out of memory",
    re.IGNORECASE,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, NumPy or PyTorch means that memory ran out; doesn't import them.

    A library that can't be loaded for lack of memory raises ImportError, sometimes as the cause of other errors.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError | RuntimeError | OSError):
        chain = error.__cause__ or error.__context__
        return names_lack_of_memory(str(error)) or (chain is not None and is_out_of_memory(chain))
    return False


def names_lack_of_memory(text: str) -> bool:
    """Return whether the messages that a process printed mean that its memory ran out."""
    return _SIGNS.search(text) is not None


def describe(error: BaseException | str) -> str:
    """Describe the request that failed and the memory there is, in GiB; the error may be a message of a library."""
    found = _ASKED.search(str(error))
    size = float(found[2]) * 1024.0 ** _UNITS.index(found[3] or " ") / 2**30 if found else 0.0
    # The last, small request says nothing about the memory that is required.
    asked = f", {size:.3g} GiB were requested" if size >= 0.001 else ""
    if type(error).__name__ == "OutOfMemoryError" or "CUDA" in str(error):
        total = re.search(r"total capacity of ([\d.]+ \w+)", str(error))
        free = re.search(r"([\d.]+ \w+) is free", str(error))
        there = ", ".join(f"{each[1]} {what}" for each, what in ((free, "free"), (total, "in total")) if each)
        return f"the memory of the GPU is not sufficient{asked}" + (f" ({there})" if there else "")
    limit = address_space_limit()
    if limit is not None:
        return f"the address space is not sufficient{asked} (`ulimit -v` is {limit // 1024:,} KiB)"
    pages = {name: os.sysconf(name) for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES") if name in os.sysconf_names}
    sizes = [count * os.sysconf("SC_PAGE_SIZE") / 2**30 for count in pages.values()]
    there = " ({:.3g} GiB free, {:.3g} GiB in total)".format(*sizes) if len(sizes) == 2 else ""
    return f"the memory of this machine is not sufficient{asked}{there}"


def total() -> int | None:
    """Return the memory of this machine in bytes; None if the system doesn't tell."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in os.sysconf_names else None


def address_space_limit() -> int | None:
    """Return the limit on the address space of this process in bytes (`ulimit -v`), or None."""
    if sys.platform == "win32":
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def check_room(size: int, purpose: str) -> None:
    """Raise an error if `size` bytes can't be allocated: for libraries that end the process in that case."""
    try:
        mmap.mmap(-1, size).close()
    except (OSError, MemoryError) as error:
        raise InputError(
            f"{purpose} requires {size / 2**20:,.0f} MiB; {describe(error)}; raise the limit, or use a machine with "
            "more memory"
        ) from error
