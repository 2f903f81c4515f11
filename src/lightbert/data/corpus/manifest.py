"""The manifest of a prepared folder: counts, settings, and the size and hash of every file."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.files import sha256, write_atomic

FORMAT = 1
NAME = "manifest.json"

Split = Literal["train", "held-out"]


@dataclass(frozen=True)
class FileRecord:
    """The size and hash of one file."""

    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "FileRecord":
        """Create the record of an existing file."""
        return cls(path.stat().st_size, sha256(path))


@dataclass(frozen=True)
class ShardRecord:
    """One shard: the files `NAME.tokens.bin`, `NAME.sentences.bin` and `NAME.documents.bin`."""

    name: str
    split: Split
    documents: int
    sentences: int
    tokens: int
    files: dict[str, FileRecord]


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`; the order of the shards is the order of the documents."""

    format: int
    dtype: Literal["uint16", "uint32"]
    vocab: int
    settings: dict[str, Any]
    files: dict[str, FileRecord]
    shards: tuple[ShardRecord, ...]

    def all_files(self) -> Iterator[tuple[str, FileRecord]]:
        """Yield every file of the folder except the manifest itself."""
        yield from self.files.items()
        for shard in self.shards:
            yield from shard.files.items()


def write(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, which includes a hash of its own content."""
    write_atomic(folder / NAME, _serialize(to_mapping(manifest)))


def read(folder: Path) -> Manifest:
    """Read `manifest.json` and verify its hash."""
    path = folder / NAME
    if not path.is_file():
        raise InputError(f"'{folder}' has no {NAME}; give a folder written by `lightbert prepare`")
    text = path.read_bytes()
    try:
        mapping = json.loads(text)
        mapping.pop("sha256")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise _damaged(path) from None
    if mapping.get("format") != FORMAT:
        raise InputError(f"'{path}' must have format {FORMAT}, got {mapping.get('format')!r}; prepare the folder again")
    if _serialize(mapping).encode() != text:
        raise _damaged(path)
    return from_mapping(Manifest, mapping)


def _serialize(mapping: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(mapping).encode()).hexdigest()
    return json.dumps({**mapping, "sha256": digest}, indent=1) + "\n"


def _damaged(path: Path) -> InputError:
    return InputError(f"'{path}' is damaged or was edited; copy the folder again or rerun `lightbert prepare`")
