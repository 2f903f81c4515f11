"""Resuming a preparation: finished and unfinished work on disk, and the lock that protects it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lightbert.data.corpus import manifest
from lightbert.data.corpus.manifest import Manifest
from lightbert.data.corpus.settings import differences
from lightbert.data.corpus.stage import SETTINGS, STAGING, has_finished_parts, remove_staged
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.folder_lock import locked as lock

_REMEDY = "use the same settings, another --out, or --again to start over"


def read_finished(folder: Path, settings: dict[str, Any]) -> Manifest | None:
    """Return the manifest of a finished folder, or None; raise an error if its settings differ."""
    if not (folder / manifest.NAME).is_file():
        return None
    found = manifest.read(folder)
    if changed := differences(found.settings, settings):
        raise _settings_error(folder, changed)
    return found


def start_or_resume(folder: Path, settings: dict[str, Any], *, again: bool) -> None:
    """Write the settings to a new folder, or compare them with the settings of the existing parts."""
    path = folder / SETTINGS
    if has_finished_parts(folder) and not again:
        if changed := differences(_read_settings(path), settings):
            raise _settings_error(folder, changed)
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
                # Bad input that is found before the first finished part leaves no files.
                if not has_finished_parts(folder):
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


def _settings_error(folder: Path, changed: str) -> InputError:
    return InputError(f"'{folder}' was prepared with other settings: {changed}; {_REMEDY}")
