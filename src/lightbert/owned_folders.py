"""Kinds of folders that lightbert writes: only a folder that is recognised as such is ever replaced or removed."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from lightbert.errors import InputError

TEMPORARY = (".*.tmp-*", ".*.old-*")
"""Patterns of the temporary files and folders that `files.py` writes."""


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
            if not inner and not any(fnmatch(name, pattern) for pattern in (*self.files, *TEMPORARY)):
                return name
        return ""
