"""Files that appear whole or not at all, and tensors without pickle."""

import errno
import hashlib
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lightbert.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new one, never a part."""
    with file_atomic(Path(path)) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def folder_atomic(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` and rename it to `path` when the body succeeds.

    A folder that is already there is replaced whole: it is renamed aside and removed once the new one is in place.
    When the body raises, nothing has changed.
    """
    path = Path(path).resolve()
    if path.exists() and not path.is_dir():
        raise InputError(f"'{path}' is a file where a folder should go; remove it or choose another name")
    created = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _sibling(path, "tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                _sync(Path(folder, name))
            _sync(Path(folder))
        move_folder(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in created:
            # Not empty: somebody else has begun to use it meanwhile.
            with suppress(OSError):
                parent.rmdir()
        raise


def move_folder(source: Path, target: Path) -> None:
    """Rename a folder whose files are already safe on the disk; one that has the name is replaced whole."""
    if not target.exists():
        source.replace(target)
        _sync(target.parent)
        return
    aside = _sibling(target, "old")
    shutil.rmtree(aside, ignore_errors=True)
    target.replace(aside)
    try:
        source.replace(target)
    except BaseException:
        aside.replace(target)
        raise
    _sync(target.parent)
    shutil.rmtree(aside)


def make_folder(path: str | Path) -> None:
    """Make a folder that results are to go to, unless it is there; refuse one that cannot be written to."""
    path = Path(path)
    taken = next((place for place in (path, *path.parents) if place.exists() and not place.is_dir()), None)
    if taken is not None:
        raise InputError(f"'{taken}' is a file where a folder should go; choose another name")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder '{path}' ({error.strerror}); choose another one") from error
    if not os.access(path, os.W_OK):
        raise InputError(f"cannot write into the folder '{path}' (Permission denied); choose another one")


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_tensors(path: str | Path) -> "dict[str, Tensor]":
    """Read a safetensors file. A pickle is refused: opening one runs whatever code it carries."""
    path = Path(path)
    if path.suffix.lower() in _PICKLES:
        raise InputError(
            f"'{path}' is a pickle, which can run code when it is opened; convert it with "
            f"`lightbert convert {shlex.quote(str(path.parent))} NEW_FOLDER --to lightbert`, which reads tensors only"
        )
    if not path.is_file():
        raise InputError(f"there is no file '{path}'; give the path of a safetensors file")
    import safetensors
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except safetensors.SafetensorError as error:
        raise InputError(f"'{path}' is truncated or not a safetensors file ({error}); copy it again") from error


def write_tensors(path: str | Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file as safely as `write_atomic`; the caller leaves out tensors that share memory."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with file_atomic(Path(path)) as temporary:
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        try:
            save_file(contiguous, temporary, metadata=dict(metadata) if metadata is not None else None)
        except SafetensorError as error:
            # A full disk, above all: callers look for the error that every other file raises then.
            raise OSError(errno.EIO, str(error), str(path)) from error


@contextmanager
def file_atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; the file written there gets its final name when the body succeeds."""
    # Before the body's work: `os.replace` would refuse as well, but only after it.
    if path.is_dir():
        raise InputError(f"'{path}' is a folder where a file should go; choose another name")
    temporary = _sibling(path, "tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sibling(path: Path, purpose: str) -> Path:
    return path.with_name(f".{path.name}.{purpose}-{os.getpid()}")


def _sync(path: Path) -> None:
    """Make a file's content, or a folder's list of names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
