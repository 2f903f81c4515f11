"""What is already on the disk when a preparation starts: nothing, a part of the work, or all of it."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightbert.data import manifest
from lightbert.data.manifest import Manifest
from lightbert.data.settings import differences
from lightbert.data.stage import has_parts
from lightbert.errors import InputError
from lightbert.files import write_atomic

_SETTINGS, _LOCK = "settings.json", "lock"
_REMEDY = "use the same settings, another --out, or --again to begin anew"


def finished(folder: Path, settings: dict[str, Any]) -> Manifest | None:
    """Return the manifest of a folder that is whole; a folder with other settings or other content is an error."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not folder.is_dir() or not (folder / manifest.NAME).is_file():
        raise InputError(f"'{folder}' is there already and is no prepared folder; choose another --out")
    found = manifest.read(folder)
    refuse_others(folder, found.settings, settings)
    return found


def begin_or_go_on(folder: Path, settings: dict[str, Any]) -> None:
    """Note the settings in a new folder, or compare them with those of the parts that are there."""
    path = folder / _SETTINGS
    if has_parts(folder):
        refuse_others(folder, json.loads(path.read_text()), settings)
        return
    for other in folder.iterdir():
        if other.name != _LOCK:
            other.unlink()
    write_atomic(path, json.dumps(settings))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second preparation of the same folder out; the lock goes with the process, however it ends."""
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
            # Bad input that shows before anything is done leaves nothing behind.
            if not has_parts(folder):
                shutil.rmtree(folder)
            raise


def refuse_others(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise the error that says which settings differ, if any do."""
    if changed := differences(before, now):
        raise InputError(f"'{folder}' was prepared with other settings: {changed}; {_REMEDY}")
