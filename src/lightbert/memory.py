"""Errors of the host and the GPU when memory runs out, as one sentence: what was asked for, what there is."""

import os
import re

_ASKED = re.compile(r"([Tt]ried to allocate|Unable to allocate) (\d[\d.]*) ?(?:bytes|([KMGTPE])i?B)?")
_UNITS = " KMGTPE"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, NumPy or PyTorch means that memory ran out; doesn't import them."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def describe(error: BaseException) -> str:
    """Describe the request that failed and the memory there is, in GiB."""
    found = _ASKED.search(str(error))
    asked = (
        f", {float(found[2]) * 1024.0 ** _UNITS.index(found[3] or ' ') / 2**30:.3g} GiB were requested" if found else ""
    )
    if type(error).__name__ == "OutOfMemoryError":
        total = re.search(r"total capacity of ([\d.]+ \w+)", str(error))
        free = re.search(r"([\d.]+ \w+) is free", str(error))
        there = ", ".join(f"{each[1]} {what}" for each, what in ((free, "free"), (total, "in total")) if each)
        return f"the memory of the GPU is not sufficient{asked}" + (f" ({there})" if there else "")
    pages = {name: os.sysconf(name) for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES") if name in os.sysconf_names}
    sizes = [count * os.sysconf("SC_PAGE_SIZE") / 2**30 for count in pages.values()]
    there = " ({:.3g} GiB free, {:.3g} GiB in total)".format(*sizes) if len(sizes) == 2 else ""
    return f"the memory of this machine is not sufficient{asked}{there}"
