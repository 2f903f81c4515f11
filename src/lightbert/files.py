"""Atomic writes of files and folders, and tensors without pickle."""

import errno
import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lightbert.errors import InputError
from lightbert.owned_folders import FolderKind, remove_folder

if TYPE_CHECKING:
    from torch import Tensor

_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Write a file atomically: a reader, also after a crash, sees either the old content or the new content."""
    with file_atomic(Path(path)) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def folder_atomic(path: str | Path, kind: FolderKind) -> Iterator[Path]:
    """Yield a temporary folder next to `path` and rename it to `path` when the body succeeds.

    An existing folder of the same kind is replaced as a whole: it is renamed first, and removed once the new folder is
    in place. A folder with anything else in it raises an error before the body runs. If the body raises, `path` is
    unchanged.
    """
    path = Path(path).resolve()
    recover_folder(path, kind)
    _check_target(path, kind)
    created = [parent for parent in path.parents if not parent.exists()]
    make_folder(path.parent)
    temporary = _sibling(path, "tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                _sync(Path(folder, name))
            _sync(Path(folder))
        # Checked again: files may have been added while the body ran.
        _check_target(path, kind)
        move_folder(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in created:
            # The folder is not empty: another process uses it by now.
            with suppress(OSError):
                parent.rmdir()
        raise


def _check_target(path: Path, kind: FolderKind) -> None:
    if path.exists() and not path.is_dir():
        raise InputError(f"'{path}' must be a folder, but is a file; remove it or choose another name")
    if path.exists() and Path.cwd().is_relative_to(path):
        raise InputError(f"'{path}' is the current folder or contains it, and can't be replaced; name another folder")
    kind.check(path)


def move_folder(source: Path, target: Path) -> None:
    """Rename a folder whose files are already flushed to disk, replacing an existing folder as a whole."""
    if not target.exists():
        source.replace(target)
        _sync(target.parent)
        return
    backup = _sibling(target, "old")
    if backup.exists() or backup.is_symlink():
        remove_folder(backup)
    target.replace(backup)
    try:
        source.replace(target)
    except BaseException:
        backup.replace(target)
        raise
    _sync(target.parent)
    remove_folder(backup)


def recover_folder(path: Path, kind: FolderKind) -> None:
    """Undo what a process that was killed in `move_folder` left: restore the old folder, or remove its backup."""
    prefix = f".{path.name}.old-"
    found = [each for each in path.parent.iterdir() if each.name.startswith(prefix)] if path.parent.is_dir() else []
    for backup in found:
        if _process_runs(backup.name.removeprefix(prefix)):
            continue
        if path.exists():
            kind.remove(backup)
        else:
            backup.replace(path)


def _process_runs(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ValueError:
        # Not a backup of ours.
        return True
    except OSError:
        return False
    return int(pid) != os.getpid()


def check_name(name: str | Path) -> None:
    """Check that a name can be that of a file or folder, and is not a text, for example."""
    try:
        Path(name).exists()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise InputError(too_long(str(name))) from None


def too_long(name: str) -> str:
    """The error for a name that no file or folder can have."""
    return f"the name '{name[:57]}…' is too long for a file or folder; check the order of the arguments"


def make_folder(path: str | Path) -> None:
    """Create an output folder if it does not exist, and check that it is writable."""
    path = Path(path)
    taken = next((place for place in (path, *path.parents) if place.exists() and not place.is_dir()), None)
    if taken is not None:
        raise InputError(f"'{taken}' must be a folder, but is a file; choose another name")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder '{path}' ({error.strerror}); choose another folder") from error
    if not os.access(path, os.W_OK):
        raise InputError(f"cannot write to the folder '{path}' (Permission denied); choose another folder")


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_tensors(path: str | Path) -> "dict[str, Tensor]":
    """Read a safetensors file; raise `InputError` for a pickle, because unpickling can execute code."""
    path = Path(path)
    if path.suffix.lower() in _PICKLES:
        raise InputError(
            f"'{path}' is a pickle, and unpickling can execute code; convert it with "
            f"`lightbert convert {shlex.quote(str(path.parent))} NEW_FOLDER --to lightbert`, which reads tensors only"
        )
    if not path.is_file():
        raise InputError(f"'{path}' not found; give the path of a safetensors file")
    import safetensors
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except safetensors.SafetensorError as error:
        raise InputError(f"'{path}' is truncated or not a safetensors file ({error}); copy it again") from error


def write_tensors(path: str | Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically; the tensors must not overlap in memory."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with file_atomic(Path(path)) as temporary:
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        # safetensors creates files that only their owner can read; created here, they have the mode of other files.
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(contiguous, temporary, metadata=dict(metadata) if metadata is not None else None)
            temporary.chmod(mode)
        except SafetensorError as error:
            # Most often the disk is full; callers handle OSError, which all other writes raise in that case.
            raise OSError(errno.EIO, str(error), str(path)) from error


@contextmanager
def file_atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; the file written there is renamed to `path` when the body succeeds.

    A device or a pipe is written directly, and the target of a symbolic link is replaced instead of the link.
    """
    # Checked first because `os.replace` would fail only after the body has done its work.
    if path.is_dir():
        raise InputError(f"'{path}' must be a file, but is a folder; choose another name")
    if path.exists() and not path.is_file():
        with _stream(path):
            yield path
        return
    path = path.resolve() if path.is_symlink() else path
    temporary = _sibling(path, "tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _stream(path: Path) -> Iterator[None]:
    """Say that a named pipe waits for its reader, and that its reader left; devices are always ready."""
    descriptor = None
    if path.is_fifo():
        try:
            # Kept open: if it was closed before the pipe is written, the reader would see the end of the file.
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            print(f"waiting for a reader of the pipe '{path}'", file=sys.stderr, flush=True)
    try:
        yield
    except BrokenPipeError:
        raise InputError(f"the reader of the pipe '{path}' left before everything was written; run it again") from None
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def temporary_file(folder: Path, name: str) -> Iterator[Path]:
    """Yield the path of a temporary file in a folder; the file is removed at the end."""
    path = _sibling(folder / name, "tmp")
    path.unlink(missing_ok=True)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def check_not_input(out: Path, *inputs: str | Path) -> None:
    """Raise an error if an output file is one of the input files, which it would replace."""
    for path in map(Path, inputs):
        if out.is_file() and path.is_file() and out.samefile(path):
            raise InputError(f"the output '{out}' would replace the input '{path}'; choose another name with --out")


def _sibling(path: Path, purpose: str) -> Path:
    return path.with_name(f".{path.name}.{purpose}-{os.getpid()}")


def _sync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
