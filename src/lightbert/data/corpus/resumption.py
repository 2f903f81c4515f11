"""Resuming a preparation: finished and unfinished work on disk, and the lock that protects it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lightbert.data.corpus import manifest, tokenizer
from lightbert.data.corpus.manifest import Manifest
from lightbert.data.corpus.settings import differences
from lightbert.data.corpus.stage import SETTINGS, STAGING, has_training_shards, remove_staged
from lightbert.errors import InputError
from lightbert.files import locked as lock
from lightbert.files import write_atomic

_REMEDY = "use the same settings, another --out, or --again to start over"


def read_finished(folder: Path, settings: dict[str, Any]) -> Manifest | None:
    """Return the manifest of a finished folder, or None; raise an error if its settings or its tokenizer differ."""
    if not (folder / manifest.NAME).is_file():
        return None
    found = manifest.read(folder)
    _check_same(folder, found.settings, settings)
    return found


def start_or_resume(folder: Path, settings: dict[str, Any], *, again: bool) -> None:
    """Write the settings to a new folder, or compare them with the settings of the existing parts."""
    path = folder / SETTINGS
    if not again and has_training_shards(folder):
        _check_same(folder, _read_settings(path), settings)
        return
    remove_staged(folder)
    write_atomic(path, json.dumps(settings))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the staging folder against concurrent preparations; the lock is released when the process ends."""
    # Before the lock is written, which would mark a folder of the user as ours.
    STAGING.check(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with lock(folder, "is preparing", "wait for it or choose another --out"):
            try:
                yield
            except InputError:
                # Bad input that is found before the first finished shard leaves no files.
                if not has_training_shards(folder):
                    remove_staged(folder)
                raise
    finally:
        # Empty if nothing was finished.
        with suppress(OSError):
            folder.rmdir()


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is missing or damaged; pass --again to start over")
    return content


def _check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise an error if the settings differ, or if a given tokenizer isn't the one in the folder any more."""
    if changed := differences(before, now) or _changed_tokenizer(folder, now["tokenizer"]):
        raise InputError(f"'{folder}' was prepared with other settings: {changed}; {_REMEDY}")


def _changed_tokenizer(folder: Path, given: str | None) -> str:
    if given is None or not (folder / tokenizer.FILE).is_file():
        return ""
    return "" if tokenizer.is_saved(tokenizer.load(given), folder) else f"the content of the tokenizer '{given}'"
