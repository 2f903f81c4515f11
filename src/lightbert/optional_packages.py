"""Imports of optional packages: an error says whether a package is missing, broken, or can't be loaded into memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from lightbert import memory
from lightbert.errors import InputError


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
        if memory.is_out_of_memory(error):
            more = "raise the limit" if memory.address_space_limit() is not None else "use a machine with more memory"
            raise InputError(
                f"{requirement}, but it can't be loaded: {memory.describe(error)}; {more}{alternative}"
            ) from error
        if not isinstance(error, ImportError):
            raise
        how = f"install it with: pip install '{package}'{alternative}"
        if isinstance(error, ModuleNotFoundError):
            raise InputError(f"{requirement}; {how}") from error
        raise InputError(f"{requirement}, but it can't be loaded ({error}); {how}") from error
