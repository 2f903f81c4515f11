"""Resuming a preparation: finished and unfinished work on disk, and the lock that protects it."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightbert.data.corpus import manifest
from lightbert.data.corpus.manifest import Manifest
from lightbert.data.corpus.settings import differences
from lightbert.data.corpus.stage import has_finished_parts
from lightbert.errors import InputError
from lightbert.files import write_atomic

_SETTINGS, _LOCK = "settings.json", "lock"
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
    path = folder / _SETTINGS
    if has_finished_parts(folder) and not again:
        if changed := differences(json.loads(path.read_text()), settings):
            raise _settings_error(folder, changed)
        return
    for other in folder.iterdir():
        if other.name != _LOCK:
            other.unlink()
    write_atomic(path, json.dumps(settings))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder against concurrent preparations; the lock is released when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process is preparing '{folder}'; wait for it or choose another --out"
                ) from None
        try:
            yield
        except InputError:
            # Bad input that is found before the first finished part leaves no files.
            if not has_finished_parts(folder):
                shutil.rmtree(folder)
            raise


def _settings_error(folder: Path, changed: str) -> InputError:
    return InputError(f"'{folder}' was prepared with other settings: {changed}; {_REMEDY}")
