"""Hashes of large files, remembered between runs for as long as the files don't change.

They are kept in the user's cache folder, so that data may be read-only. A hash is used again if size, inode, and times
of modification and change of the file are the same.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightbert.cache_folder import cache_folder
from lightbert.files import sha256, write_atomic
from lightbert.progress import progress

# A file that is changed right after it was hashed can keep its modification time, whose resolution is milliseconds.
_SECONDS_UNTIL_SETTLED = 2.0
_THREADS = 8
_BYTES_WITHOUT_PROGRESS = 1 << 30


def hash_files(paths: Iterable[Path], owner: Path, *, again: bool = False) -> dict[Path, str]:
    """Return the SHA-256 of every file, reading only those that changed since the last call for this owner.

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
