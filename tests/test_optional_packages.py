"""An optional package that is missing is told apart from one that is broken or can't be loaded for lack of memory."""

import pytest

from lightbert.errors import InputError, required

LINKER = "libfoo.so: failed to map segment from shared object: Cannot allocate memory"
INSTALL = r"install it with: pip install 'lightbert\[data\]', or use plain files$"


def attempt(error: BaseException) -> None:
    with required("'a.parquet' requires pyarrow", "lightbert[data]", ", or use plain files"):
        raise error


def test_imports_that_succeed_are_left_alone() -> None:
    with required("'a.parquet' requires json", "lightbert[data]"):
        import json  # noqa: F401


def test_a_missing_package_is_to_be_installed() -> None:
    with pytest.raises(InputError, match=rf"^'a\.parquet' requires pyarrow; {INSTALL}"):
        attempt(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow"))


def test_a_broken_package_is_described() -> None:
    with pytest.raises(
        InputError, match=rf"requires pyarrow, but it can't be loaded \(undefined symbol: x\); {INSTALL}"
    ):
        attempt(ImportError("undefined symbol: x"))


def wrapped() -> ImportError:
    error = ImportError("Importing the C extensions failed")
    error.__cause__ = ImportError(LINKER)
    return error


def test_lack_of_memory_is_not_a_missing_package():
    for error in [
        ImportError(LINKER),
        OSError(LINKER),
        MemoryError(),
        RuntimeError("can't start new thread"),
        wrapped(),
    ]:
        with pytest.raises(
            InputError, match=r"can't be loaded: the memory of this machine is not .*; use a machine with more"
        ):
            attempt(error)


def test_other_errors_are_left_alone():
    for error in [OSError(2, "No such file"), RuntimeError("a bug"), ValueError("a bug")]:
        with pytest.raises(type(error)) as caught:
            attempt(error)
        assert caught.value is error
