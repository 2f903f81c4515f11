"""The staging folder of a preparation: parts are added one by one, and the finished folder is renamed.

The staging folder is called `NAME.partial`. A part is finished when its record is stored, which happens after its
shards are flushed to disk; files without a record are overwritten or removed.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightbert.config import from_mapping, to_mapping
from lightbert.data import tokenizer
from lightbert.data.encoding import EncodedDocuments, Place, vocab, width
from lightbert.data.shards import (
    FORMAT,
    MANIFEST,
    Block,
    FileRecord,
    Manifest,
    ShardRecord,
    ShardWriter,
    Split,
    Width,
    write_manifest,
)
from lightbert.errors import InputError
from lightbert.files import LOCK, FolderKind, is_lock, move_folder, read_text, sha256, write_atomic

SETTINGS = "settings.json"

_SHARDS = ("train-?????-?????.*.bin", "held-out-?????-?????.*.bin", tokenizer.FILE, tokenizer.CONFIG, MANIFEST)

PREPARED = FolderKind(
    "a prepared folder", _SHARDS, lambda folder: (folder / MANIFEST).is_file(), "choose another --out"
)
STAGING = FolderKind(
    "the working folder of a preparation",
    (LOCK, SETTINGS, "part-*.json", "docstrings-*.txt", *_SHARDS),
    lambda folder: is_lock(folder / LOCK) or _has_settings(folder) or has_finished_parts(folder),
    "move it, or choose another --out",
)


@dataclass(frozen=True)
class PartRecord:
    """A finished part of stream `stream` of `streams`: its shards, its empty documents, the start of the next part."""

    stream: int
    streams: int
    part: int
    shards: tuple[ShardRecord, ...]
    empty: int
    place: Place
    ends_stream: bool
    tokenizer: str = ""
    """The hash of the tokenizer file that encoded the part; "" if it is not in the folder."""


def partial_folder(out: Path) -> Path:
    """Return the staging folder of `out`."""
    return out.with_name(f"{out.name}.partial")


class StreamWriter:
    """Writes stream `stream` of `streams` from part number `part` on; an unfinished part is discarded on exit."""

    def __init__(self, folder: Path, width: Width, stream: int, streams: int, part: int = 0) -> None:
        self._folder, self._width, self._stream, self._streams, self._part = folder, width, stream, streams, part
        self._tokenizer = _hash_of(folder / tokenizer.FILE)
        self._open: dict[Split, ShardWriter] = {}
        self._empty = 0

    def __enter__(self) -> "StreamWriter":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._open.values():
            writer.close_unfinished()

    def append(self, encoded: EncodedDocuments) -> None:
        """Add documents to the current part."""
        self._empty += encoded.empty
        self._append("train", encoded.train)
        self._append("held-out", encoded.held_out)

    def end_part(self, place: Place, *, ends_stream: bool = False) -> None:
        """Flush the current part to disk and start the next one."""
        shards = tuple(writer.close() for writer in self._open.values())
        record = PartRecord(
            self._stream, self._streams, self._part, shards, self._empty, place, ends_stream, self._tokenizer
        )
        path = self._folder / _record_name(self._stream, self._part)
        write_atomic(path, json.dumps(to_mapping(record)))
        self._part += 1
        self._open, self._empty = {}, 0

    def _append(self, split: Split, block: Block) -> None:
        if not len(block.documents):
            return
        if split not in self._open:
            name = f"{split}-{self._stream:05d}-{self._part:05d}"
            self._open[split] = ShardWriter(self._folder, name, split, self._width)
        self._open[split].append(block)


def has_finished_parts(folder: Path) -> bool:
    """Return whether the folder has at least one finished part."""
    if (folder / MANIFEST).is_file():
        return True
    with suppress(InputError):
        return any(_read_record(path) for path in sorted(folder.glob("part-?????-?????.json"))[:1])
    return False


def _has_settings(folder: Path) -> bool:
    """Return whether settings.json has the keys of a preparation."""
    with suppress(OSError, ValueError, RecursionError, InputError):
        content = json.loads(read_text(folder / SETTINGS))
        return isinstance(content, dict) and {"sources", "sentences", "held_out"} <= content.keys()
    return False


def has_training_shards(folder: Path) -> bool:
    """Return whether the folder has at least one finished shard to train on; only then is it worth resuming."""
    records = (_read_record(path) for path in sorted(folder.glob("part-*.json")))
    return (folder / MANIFEST).is_file() or any(_for_training(record.shards) for record in records)


def read_parts(folder: Path, stream: int) -> list[PartRecord]:
    """Return the finished parts of a stream, in order."""
    records: list[PartRecord] = []
    while (path := folder / _record_name(stream, len(records))).is_file():
        records.append(_read_record(path))
        if records[-1].ends_stream:
            break
    return records


def verify_parts(folder: Path, records: Iterable[PartRecord]) -> None:
    """Verify the hashes of the shards and of the tokenizer that finished parts depend on."""
    present = _hash_of(folder / tokenizer.FILE)
    for record in records:
        if record.tokenizer not in ("", present):
            raise _damaged(folder / tokenizer.FILE)
        for name, file in (item for shard in record.shards for item in shard.files.items()):
            if _hash_of(folder / name) != file.sha256:
                raise _damaged(folder / name)


def remove_staged(folder: Path) -> None:
    """Remove everything from a staging folder except its lock."""
    STAGING.check(folder)
    for path in folder.iterdir():
        if path.name != LOCK:
            path.unlink()


def remove_stream_records(folder: Path, stream: int) -> None:
    """Remove the records of a stream, so that it is written from the start."""
    for record in reversed(read_parts(folder, stream)):
        (folder / _record_name(stream, record.part)).unlink()


def finish(folder: Path, out: Path, settings: dict[str, Any]) -> Manifest:
    """Write the manifest for the parts of all streams and rename the folder to `out`."""
    first = _finished_stream(folder, 0)
    streams = first[0].streams
    records = [*first, *(record for stream in range(1, streams) for record in _finished_stream(folder, stream))]
    if mixed := [record.stream for record in records if record.streams != streams]:
        raise InputError(f"stream {mixed[0]} in '{folder}' is not one of {streams} streams; run all streams again")
    shards = [shard for record in records for shard in record.shards]
    if not _for_training(shards):
        raise no_training_text("all documents were held out" if shards else "the sources have no text")
    ids = tokenizer.load(folder / tokenizer.FILE)
    result = Manifest(
        format=FORMAT,
        dtype=width(ids),
        vocab=vocab(ids),
        settings=settings,
        files={name: FileRecord.of(folder / name) for name in (tokenizer.FILE, tokenizer.CONFIG)},
        shards=tuple(sorted(shards, key=lambda shard: shard.split == "held-out")),
    )
    write_manifest(folder, result)
    publish(folder, out, result)
    return result


def publish(folder: Path, out: Path, content: Manifest) -> None:
    """Rename a folder with a manifest to `out`; safe to repeat after a crash."""
    PREPARED.check(out)
    STAGING.check(folder)
    names = {MANIFEST, *(name for name, _ in content.all_files())}
    for path in folder.iterdir():
        if path.name not in names:
            path.unlink()
    move_folder(folder, out)


def no_training_text(reason: str) -> InputError:
    """Return the error for a preparation without a document to train on."""
    return InputError(f"the train split must not be empty: {reason}; check the sources and --held-out")


def _for_training(shards: Iterable[ShardRecord]) -> bool:
    return any(shard.split == "train" for shard in shards)


def _finished_stream(folder: Path, stream: int) -> list[PartRecord]:
    records = read_parts(folder, stream)
    if not records or not records[-1].ends_stream:
        raise InputError(f"stream {stream} in '{folder}' is not finished; run it again")
    return records


def _read_record(path: Path) -> PartRecord:
    try:
        return from_mapping(PartRecord, json.loads(path.read_text()))
    except (ValueError, RecursionError, InputError) as error:
        raise _damaged(path) from error


def _record_name(stream: int, part: int) -> str:
    return f"part-{stream:05d}-{part:05d}.json"


def _hash_of(path: Path) -> str:
    return sha256(path) if path.is_file() else ""


def _damaged(path: Path) -> InputError:
    return InputError(f"'{path}' is damaged or was edited since its part was finished; pass --again to start over")
