"""Input files and models of commands: whether they exist is checked before torch is imported, which takes seconds."""

from pathlib import Path

from lightbert import bundled
from lightbert.errors import InputError, model_not_found

_NOT_FILES = ("", "-", "hub")


def check_file(path: str) -> None:
    """Check that a file or folder exists; "-" is standard input, and "hub" the Hugging Face Hub."""
    if path not in _NOT_FILES and not _exists(path):
        raise InputError(f"'{path}' not found; check the path")


def check_corpus(data: str, out: str) -> None:
    """Check that the prepared text of a new run exists; one that has begun may be past the phase that needs it."""
    if not is_finished(out) and not _exists(f"{out}/checkpoints") and not _exists(data):
        raise InputError(f"'{data}' has no manifest.json; give a folder written by `lightbert prepare`")


def check_model(name: str) -> None:
    """Check that a model exists if its name can only be a path; other names are looked up when it is loaded."""
    if "/" not in name or name in bundled.NAMES or not _exists(str(Path(name).parent)):
        return
    if not _exists(name) and not _exists(f"{name}.index"):
        raise model_not_found(name)


def is_finished(out: str) -> bool:
    """Whether a run is finished; its report needs no data."""
    return _exists(f"{out}/result.json")


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        # Such as a name that is too long.
        return False
