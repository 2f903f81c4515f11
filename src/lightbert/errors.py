"""`InputError`, the exception for bad input, and sentences: misspelled names, missing packages, lack of memory."""

import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_ASKED = re.compile(
    r"([Tt]ried to allocate|Unable to allocate|memory allocation of) (\d[\d.]*) ?(?:bytes|([KMGTPE])i?B)?"
)
_UNITS = " KMGTPE"
# The messages of the dynamic linker, of threads, and of the allocators of PyTorch, Rust and C++.
_OUT_OF_MEMORY = re.compile(
    r"failed to map segment|cannot allocate|cannot create .* descriptor|cannot map zero-fill|can't start new thread"
    r"|DefaultCPUAllocator|memory allocation (of|still failed)|MemoryError|bad_alloc|ThreadPoolBuildError"
    r"|out of memory",
    re.IGNORECASE,
)
# Escape sequences of a file's name or content could control the terminal on which a message is printed.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class InputError(ValueError):
    """Bad input, described in one sentence that names the value and the remedy.

    The command line prints the sentence without a traceback and exits with a non-zero status.
    """

    def __init__(self, sentence: str) -> None:
        # Messages of other libraries, which are quoted, can have several lines.
        super().__init__(printable(re.sub(r"\s*\n\s*", " ", sentence)))


def printable(text: str) -> str:
    """Escape control characters, as in a string of Python."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def shorten(value: object) -> str:
    """A value for a message, at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice most similar to `name`, or None if none is similar."""
    found = difflib.get_close_matches(name, list(choices), n=1)
    return found[0] if found else None


def listed(names: Iterable[str], *, most: int = 20, longest: int = 60) -> str:
    """Join names for a message; only the first ones if there are many, and only the start of long ones."""
    every = list(names)
    shown = [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in every[:most]]
    return ", ".join(shown) + (f", … ({len(every):,} in all)" if len(every) > most else "")


def model_not_found(name: str) -> InputError:
    """Build the error for a model that is not there."""
    return InputError(
        f"model '{name}' not found; give a folder with config.json, the name of a preset or a bundled model, the "
        "prefix of a TensorFlow 1 checkpoint, or org/name for a model on the Hugging Face Hub"
    )


def unknown(kind: str, name: str, choices: Iterable[str], *, remedy: str = "") -> InputError:
    """Build the error for a name that is not one of `choices`.

    The message suggests the most similar choice. If there is none, it gives `remedy`, or lists all choices.
    """
    names = list(choices)
    similar = nearest(name, names)
    if similar:
        remedy = f"did you mean {similar!r}?"
    elif not remedy and names:
        remedy = f"choose from {', '.join(names)}"
    elif not remedy:
        remedy = "no choices are available"
    return InputError(f"unknown {kind} {name!r}; {remedy}")


@contextmanager
def required(requirement: str, package: str, alternative: str = "") -> Iterator[None]:
    """Raise `InputError` if an import in the body fails.

    requirement: the first words of the sentence, such as "metrics require SciPy". package: what to install, such as
    "lightbert[metrics]". alternative: what to do instead, such as ", or give data=FOLDER".
    """
    try:
        yield
    # A library that the dynamic linker can't load raises ImportError or OSError, and some packages wrap it.
    except (ImportError, MemoryError, OSError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise InputError(
                f"{requirement}, but it can't be loaded: {describe_memory(error)}; use a machine with more memory"
                f"{alternative}"
            ) from error
        if not isinstance(error, ImportError):
            raise
        how = f"install it with: pip install '{package}'{alternative}"
        if isinstance(error, ModuleNotFoundError):
            raise InputError(f"{requirement}; {how}") from error
        raise InputError(f"{requirement}, but it can't be loaded ({error}); {how}") from error


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
        return bool(_OUT_OF_MEMORY.search(str(error))) or (chain is not None and is_out_of_memory(chain))
    return False


def describe_memory(error: BaseException | str) -> str:
    """Describe the request that failed and the memory there is, in GiB; the error may be a message of a library."""
    request = _ASKED.search(str(error))
    size = float(request[2]) * 1024.0 ** _UNITS.index(request[3] or " ") / 2**30 if request else 0.0
    # The last, small request says nothing about the memory that is required.
    asked = f", {size:.3g} GiB were requested" if size >= 0.001 else ""
    if type(error).__name__ == "OutOfMemoryError" or "CUDA" in str(error):
        total = re.search(r"total capacity of ([\d.]+ \w+)", str(error))
        free = re.search(r"([\d.]+ \w+) is free", str(error))
        there = ", ".join(f"{match[1]} {what}" for match, what in ((free, "free"), (total, "in total")) if match)
        return f"the memory of the GPU is not sufficient{asked}" + (f" ({there})" if there else "")
    pages = {name: os.sysconf(name) for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES") if name in os.sysconf_names}
    sizes = [count * os.sysconf("SC_PAGE_SIZE") / 2**30 for count in pages.values()]
    there = " ({:.3g} GiB free, {:.3g} GiB in total)".format(*sizes) if len(sizes) == 2 else ""
    return f"the memory of this machine is not sufficient{asked}{there}"
