"""Files and folders: atomic writes, what lightbert may replace, locks, hashes, and tensors without pickle.

Nothing that lightbert did not write is deleted or replaced. What it writes temporarily lies in hidden folders,
``.lightbert-PID-…``, with a mark that names the process; what a killed process left there is removed by the next write
in the same place.
"""

import errno
import hashlib
import json
import math
import os
import shlex
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.errors import InputError
from lightbert.progress import progress

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

LOCK = ".lightbert.lock"
"""The file that locks a folder."""
MAX_TEXT = 64 * 2**20
"""The maximum size of a JSON file of a model, in bytes."""
MAX_TOKENIZER = 512 * 2**20

_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
_PREFIX, _MARK, _OLD = ".lightbert-", "lightbert.json", "old"
_OUTPUTS = ".lightbert.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
# A file that is changed right after it was hashed can keep its modification time, whose resolution is milliseconds.
_SECONDS_UNTIL_SETTLED = 2.0
_THREADS = 8
_MAX_GROWTH = 1024
_BYTES_WITHOUT_PROGRESS = 1 << 30


def is_empty(folder: Path) -> bool:
    """Return whether the path is a folder without entries."""
    return folder.is_dir() and not any(folder.iterdir())


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content; of a symbolic link, only the link is removed."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder: the patterns of its files, and the mark by which lightbert recognises its own.

    name: the kind in messages, with its article. remedy: what to do about a folder of another kind.
    """

    name: str
    files: tuple[str, ...]
    mark: Callable[[Path], bool] = lambda folder: True
    remedy: str = "choose another folder"

    def check(self, folder: Path) -> None:
        """Raise an error if the folder exists and holds anything that lightbert did not write."""
        if not folder.exists() or is_empty(folder):
            return
        if not folder.is_dir() or not self.mark(folder):
            raise InputError(f"'{folder}' exists and is not {self.name}; {self.remedy}")
        if foreign := self._foreign(folder):
            raise InputError(f"'{folder}' contains '{foreign}', which lightbert did not write; {self.remedy}")

    def is_ours(self, folder: Path) -> bool:
        """Return whether the folder is of this kind and holds nothing else."""
        return folder.is_dir() and self.mark(folder) and not self._foreign(folder)

    def remove(self, folder: Path) -> None:
        """Remove a folder of this kind, or an empty one; anything else is left as it is."""
        if is_empty(folder) or self.is_ours(folder):
            remove_folder(folder)

    def _foreign(self, folder: Path) -> str:
        """Return the first entry that matches none of the patterns."""
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            inner = any(pattern.startswith(f"{name}/") for pattern in self.files) and path.is_dir()
            temporary = folder / Path(name).parts[0]
            if temporary.name.startswith(_PREFIX) and _is_temporary(temporary):
                continue
            if not inner and not any(fnmatch(name, pattern) for pattern in self.files):
                return name
        return ""


def write_atomic(path: str | Path, content: bytes | str) -> None:
    """Write a file atomically: a reader, also after a crash, sees either the old content or the new content."""
    with file_atomic(Path(path)) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def file_atomic(path: Path, *, follow: bool = False) -> Iterator[Path]:
    """Yield a temporary path; the file written there is renamed to `path` when the body succeeds.

    A device or a pipe is written directly. follow: replace the target of a symbolic link, which is an error otherwise.
    """
    # Checked first because `os.replace` would fail only after the body has done its work.
    if path.is_dir():
        raise InputError(f"'{path}' must be a file, but is a folder; choose another name")
    if path.exists() and not path.is_file():
        with _stream(path):
            yield path
        return
    if path.is_symlink():
        if not follow:
            raise InputError(f"'{path}' is a link, whose target would be replaced; remove the link")
        path = path.resolve()
    try:
        with _temporary_folder(path) as folder:
            temporary = folder / path.name
            yield temporary
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
    except OSError as error:
        if error.errno in _FULL:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextmanager
def temporary_file(folder: Path, name: str) -> Iterator[Path]:
    """Yield the path of a temporary file in a hidden folder; it is removed at the end."""
    with _temporary_folder(folder / name) as temporary:
        yield temporary / name


@contextmanager
def folder_atomic(path: str | Path, kind: FolderKind) -> Iterator[Path]:
    """Yield a temporary folder and rename it to `path` when the body succeeds.

    An existing folder of the same kind is replaced as a whole. A folder with anything else in it raises an error before
    the body runs. If the body raises, `path` is unchanged.
    """
    path = Path(path).resolve()
    sweep(path.parent)
    _check_target(path, kind)
    created = [parent for parent in path.parents if not parent.exists()]
    make_folder(path.parent)
    try:
        with _temporary_folder(path) as folder:
            temporary = folder / path.name
            temporary.mkdir()
            yield temporary
            for inner, _, names in os.walk(temporary):
                for name in names:
                    _sync(Path(inner, name))
                _sync(Path(inner))
            # Checked again: files may have been added while the body ran.
            _check_target(path, kind)
            move_folder(temporary, path)
    except BaseException:
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
    with _temporary_folder(target) as folder:
        old = folder / _OLD
        if target.exists() or target.is_symlink():
            target.replace(old)
        try:
            source.replace(target)
        except BaseException:
            if old.exists() or old.is_symlink():
                old.replace(target)
            raise
        _sync(target.parent)


@contextmanager
def moved_aside(folder: Path) -> Iterator[Path]:
    """Rename a folder that is to be removed: a killed process leaves all of it or nothing under its name."""
    with _temporary_folder(folder) as temporary:
        yield folder.replace(temporary / folder.name)


@contextmanager
def _temporary_folder(target: Path) -> Iterator[Path]:
    """Yield a hidden folder next to `target`, with a mark by which `sweep` recognises it; removed at the end."""
    sweep(target.parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=target.parent))
    try:
        (folder / _MARK).write_text(_mark(target=target.name), encoding="utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove the temporary folders that killed processes left in a folder; restore what they were about to replace."""
    for temporary in list(folder.glob(f"{_PREFIX}*")) if folder.is_dir() else []:
        mark = _read_mark(temporary / _MARK)
        pid = mark.get("pid", temporary.name.removeprefix(_PREFIX).partition("-")[0])
        if not _is_temporary(temporary) or mark.get("host", socket.gethostname()) != socket.gethostname():
            continue
        if _runs(pid):
            continue
        old, target = temporary / _OLD, folder / str(mark.get("target"))
        if (old.exists() or old.is_symlink()) and not target.exists() and target.parent == folder:
            old.replace(target)
        shutil.rmtree(temporary, ignore_errors=True)


def _is_temporary(folder: Path) -> bool:
    """Whether `_temporary_folder` made a folder: it has the mark, or is empty because the mark is not yet written."""
    return not folder.is_symlink() and (bool(_read_mark(folder / _MARK)) or is_empty(folder))


def _mark(**more: str) -> str:
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    content = {"writer": "lightbert", "host": socket.gethostname(), "pid": os.getpid(), "started": started, **more}
    return json.dumps(content) + "\n"


def _read_mark(path: Path) -> dict[str, Any]:
    """Return the content of a mark, or an empty dictionary for any other file."""
    with suppress(OSError, ValueError, RecursionError, InputError):
        content = json.loads(read_text(path)) if not path.is_symlink() else None
        if isinstance(content, dict) and content.get("writer") == "lightbert":
            return content
    return {}


def _runs(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError, TypeError, ValueError):
        return False
    return True


@contextmanager
def locked(folder: Path, action: str, remedy: str) -> Iterator[None]:
    """Hold the lock of a folder; raise an error that names the process that holds it.

    The lock is the operating system's, which ends with the process however it ends: a lock file that a killed process
    left behind never blocks.

    action: what the other process does, such as "is training in". remedy: what to do about it.
    """
    from filelock import FileLock, Timeout

    path = folder / LOCK
    check_lock(path)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = _read_mark(path)
        described = "process {pid} on {host}, started {started},".format_map(holder) if holder else "another process"
        raise InputError(f"{described} {action} '{folder}'; {remedy}") from None
    try:
        write_lock(path)
        ours = path.stat()
        yield
    finally:
        # Another process may have a new lock there by now, if the folder was renamed.
        with suppress(OSError):
            if os.path.samestat(ours, path.stat()):
                path.unlink()
        lock.release()


def write_lock(path: Path) -> None:
    """Write who holds a lock; without holding it, the file only marks a folder as ours."""
    path.write_text(_mark(), encoding="utf-8")


def check_lock(path: Path) -> None:
    """Raise an error if the file of a lock is one that lightbert did not write."""
    if path.is_symlink() or (path.exists() and not is_lock(path)):
        raise InputError(f"'{path}' is not a lock that lightbert wrote; remove it, or choose another folder")


def is_lock(path: Path) -> bool:
    """Whether a file is a lock that lightbert wrote; a process that was killed at once left an empty one."""
    return bool(_read_mark(path)) or (path.is_file() and not path.is_symlink() and path.stat().st_size == 0)


def read_tokenizer(path: Path) -> "Tokenizer":
    """Read a tokenizer.json."""
    from tokenizers import Tokenizer

    try:
        content = read_text(path, MAX_TOKENIZER)
        growth = _growth(json.loads(content)) if '"Replace"' in content else 1
        if growth <= _MAX_GROWTH:
            return Tokenizer.from_str(content)
    except InputError:
        raise
    # The library raises nothing more specific.
    except Exception as error:
        raise InputError(f"'{path}' is not a valid tokenizer: {error}; copy it again") from error
    raise InputError(f"'{path}' replaces characters by {growth:,} times as many; use another tokenizer")


def _growth(settings: Any) -> int:
    """How many times as long the replacements of a tokenizer can make a text."""
    children = settings.values() if isinstance(settings, dict) else settings if isinstance(settings, list) else ()
    replaced = settings.get("content", "") if isinstance(settings, dict) and settings.get("type") == "Replace" else ""
    return math.prod(map(_growth, children), start=max(1, len(str(replaced))))


def check_outputs(folder: Path, names: Iterable[str], *, overwrite: bool) -> None:
    """Raise an error if a folder has a file of one of these names that `list_outputs` did not list."""
    listed = _read_mark(folder / _OUTPUTS).get("files", [])
    for path in (folder / name for name in names):
        if (path.is_symlink() or path.exists()) and path.name not in listed and not overwrite:
            raise InputError(
                f"'{path}' exists, and lightbert did not write it; choose another --out, or add --overwrite"
            )


def list_outputs(folder: Path, names: Iterable[str]) -> None:
    """List files in the manifest of a folder, so that a later command may replace them."""
    files = sorted({*_read_mark(folder / _OUTPUTS).get("files", []), *names})
    write_atomic(folder / _OUTPUTS, json.dumps({"writer": "lightbert", "files": files}) + "\n")


def read_text(path: Path, limit: int = MAX_TEXT) -> str:
    """Read a text file; raise an error if it is larger than `limit`, or is a device or a pipe, which may never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"'{path}' must be a regular file; copy it again")
    if status.st_size > limit:
        raise InputError(f"'{path}' must have at most {limit:,} bytes, got {status.st_size:,}; copy it again")
    return path.read_text(encoding="utf-8")


def read_json(path: Path, kind: type = dict) -> Any:
    """Read a JSON object, or a list if `kind` is list."""
    try:
        content = json.loads(read_text(path))
    except FileNotFoundError:
        raise InputError(f"'{path}' not found; check the path, or copy it again") from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not valid JSON: {error}") from error
    if not isinstance(content, kind):
        raise InputError(f"'{path}' is not a JSON {'object' if kind is dict else 'list'}; copy it again")
    return content


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


def check_not_input(out: Path, *inputs: str | Path) -> None:
    """Raise an error if an output file is one of the input files, which it would replace; "-" is standard input."""
    for path in map(Path, inputs):
        try:
            status = os.fstat(sys.stdin.fileno()) if str(path) == "-" else path.stat()
        # Not there, or not a file of the system.
        except (OSError, ValueError):
            continue
        if out.is_file() and os.path.samestat(status, out.stat()):
            name = "on standard input" if str(path) == "-" else f"'{path}'"
            raise InputError(f"the output '{out}' would replace the input {name}; choose another name with --out")


def _sync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Return the user's cache folder, $LIGHTBERT_CACHE or ~/.cache/lightbert, which may not exist."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lightbert"
    return Path(os.environ.get("LIGHTBERT_CACHE") or home)


def hash_files(paths: Iterable[Path], owner: Path, *, again: bool = False) -> dict[Path, str]:
    """Return the SHA-256 of every file, reading only those that changed since the last call for this owner.

    Hashes are kept in the user's cache folder, so that data may be read-only. One is used again if size, inode, and
    times of modification and change of the file are the same.

    owner: the folder or file for which the hashes are remembered together. again: read all files.
    """
    store = _store(owner)
    before = _load(store)
    known = {} if again else before
    stamps = {path: _stamp(path) for path in paths}
    hashes = {
        path: str(known[str(path.resolve())][-1])
        for path, stamp in stamps.items()
        if known.get(str(path.resolve()), [])[:-1] == stamp
    }
    missing = [path for path in stamps if path not in hashes]
    if missing:
        hashes |= zip(missing, _hash(missing, sum(int(stamps[path][0]) for path in missing)), strict=True)
        settled = time.time_ns() - int(_SECONDS_UNTIL_SETTLED * 1e9)
        lasting = {p: stamp for p, stamp in stamps.items() if max(stamp[1:3]) < settled and _stamp(p) == stamp}
        kept = {name: entry for name, entry in before.items() if Path(name).exists()}
        new = {str(path.resolve()): [*stamp, hashes[path]] for path, stamp in lasting.items()}
        # Without a writable cache folder, files are hashed every time.
        with suppress(OSError):
            store.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(store, json.dumps(kept | new))
    return hashes


def _hash(paths: list[Path], size: int) -> list[str]:
    with ThreadPoolExecutor(_THREADS) as pool:
        if size < _BYTES_WITHOUT_PROGRESS:
            return list(pool.map(sha256, paths))
        found = []
        with progress("verifying data", size, "bytes") as bar:
            for path, digest in zip(paths, pool.map(sha256, paths), strict=True):
                found.append(digest)
                bar.advance(path.stat().st_size)
        return found


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _store(owner: Path) -> Path:
    name = hashlib.sha256(str(owner.resolve()).encode()).hexdigest()[:32]
    return cache_folder() / "hashes" / f"{name}.json"


def _load(store: Path) -> dict[str, list[Any]]:
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(store.read_text(encoding="utf-8"))
        if isinstance(content, dict) and all(isinstance(value, list) and value for value in content.values()):
            return content
    return {}
