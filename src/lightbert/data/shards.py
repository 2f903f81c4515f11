"""Token shards on disk: the manifest of a prepared folder, and reading and writing of shards.

A shard consists of documents, which consist of sentences, which consist of token ids; its files are memory-mapped.
"""

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.files import hash_files, sha256, write_atomic

if TYPE_CHECKING:
    from tokenizers import Tokenizer


FORMAT = 1
MANIFEST = "manifest.json"

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


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, which includes a hash of its own content."""
    write_atomic(folder / MANIFEST, _serialize(to_mapping(manifest)))


def read_manifest(folder: Path) -> Manifest:
    """Read `manifest.json` and verify its hash."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"'{folder}' has no {MANIFEST}; give a folder written by `lightbert prepare`")
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


Ids = NDArray[np.unsignedinteger[Any]]


class Document(NamedTuple):
    """The token ids of a document and its sentence offsets: sentence s is `tokens[offsets[s]:offsets[s + 1]]`."""

    tokens: Ids  # [N], a view of the file
    offsets: NDArray[np.int64]  # [sentences + 1], from 0 to N

    @property
    def sentences(self) -> list[Ids]:
        """The sentences as a list of views."""
        bounds = self.offsets.tolist()
        return [self.tokens[start:end] for start, end in pairwise(bounds)]


class Shard(NamedTuple):
    """The three arrays of a shard, one file each."""

    tokens: Ids
    sentences: NDArray[np.uint32]  # [sentences + 1], where each sentence starts in tokens
    documents: NDArray[np.uint32]  # [documents + 1], where each document starts in sentences


class Shards:
    """One split of a folder written by `lightbert prepare`.

    The constructor checks the manifest and the size of every file; `verify` checks the hashes. Only the path is
    pickled: worker processes map the files again.
    """

    def __init__(self, folder: str | Path, split: Split = "train") -> None:
        self.folder, self.split = Path(folder), split
        self.manifest = read_manifest(self.folder)
        for name, record in self.manifest.all_files():
            _check_size(self.folder / name, record)
        self._records = [record for record in self.manifest.shards if record.split == split]
        if not self._records:
            raise InputError(f"'{folder}' has no {split} documents; prepare it again with another --held-out")
        self.shards = [_map(self.folder, record, self.manifest.dtype) for record in self._records]
        self._starts = [0, *accumulate(record.documents for record in self._records)]

    @classmethod
    def open(cls, folder: str | Path, split: Split = "train", *, verify: bool = True, again: bool = False) -> "Shards":
        """Open a folder and, by default, verify the hash of every file; ``again`` as in `verify`."""
        shards = cls(folder, split)
        if verify:
            shards.verify(again=again)
        return shards

    def verify(self, *, again: bool = False) -> None:
        """Verify the hash of every file in the folder, for all splits.

        again: also hash the files that have not changed since they were last verified.
        """
        records = {self.folder / name: record for name, record in self.manifest.all_files()}
        for path, digest in hash_files(records, self.folder, again=again).items():
            if digest != records[path].sha256:
                raise InputError(f"'{path}' is damaged: its hash does not match the manifest; copy it again")

    @property
    def content(self) -> str:
        """A hash of the content of the folder: its shards and its tokenizer, wherever they were prepared from."""
        hashes = [[name, record.sha256] for name, record in self.manifest.all_files()]
        return f"sha256:{hashlib.sha256(json.dumps(hashes).encode()).hexdigest()}"

    @property
    def vocab(self) -> int:
        """The size of the vocabulary; every id is smaller."""
        return self.manifest.vocab

    @property
    def n_documents(self) -> int:
        """The number of documents in this split."""
        return self._starts[-1]

    @property
    def n_sentences(self) -> int:
        """The number of sentences in this split."""
        return sum(record.sentences for record in self._records)

    @property
    def n_tokens(self) -> int:
        """The number of tokens in this split."""
        return sum(record.tokens for record in self._records)

    def document(self, index: int) -> Document:
        """Return document `index`, in the order of the sources; documents and sentences are never empty."""
        if not 0 <= index < self.n_documents:
            raise IndexError(f"document index must be in [0, {self.n_documents}), got {index}")
        number = bisect_right(self._starts, index) - 1
        shard = self.shards[number]
        first, last = shard.documents[index - self._starts[number] :][:2].tolist()
        offsets = shard.sentences[first : last + 1].astype(np.int64)
        return Document(shard.tokens[offsets[0] : offsets[-1]], offsets - offsets[0])

    def tokenizer(self) -> "Tokenizer":
        """Load the tokenizer that produced the ids."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def __reduce__(self) -> tuple[type["Shards"], tuple[Path, Split]]:
        return type(self), (self.folder, self.split)


def _map(folder: Path, record: ShardRecord, dtype: str) -> Shard:
    def array(part: str, dtype: str, length: int) -> NDArray[Any]:
        path = folder / f"{record.name}.{part}.bin"
        exact = np.dtype(dtype).newbyteorder("<")
        if record.files[path.name].size != length * exact.itemsize:
            raise InputError(f"'{path}' must have {length} entries according to the manifest; prepare the folder again")
        # A plain array view of the memory map, because slicing an np.memmap is several times slower.
        return np.asarray(np.memmap(path, exact, mode="r"))

    return Shard(
        tokens=array("tokens", dtype, record.tokens),
        sentences=array("sentences", "uint32", record.sentences + 1),
        documents=array("documents", "uint32", record.documents + 1),
    )


def _check_size(path: Path, record: FileRecord) -> None:
    size = path.stat().st_size if path.is_file() else None
    if size is None:
        raise InputError(f"'{path}' is listed in the manifest but missing; copy the folder again")
    if size != record.size:
        raise InputError(f"'{path}' must have {record.size} bytes, got {size}; copy it again")


Width = Literal["uint16", "uint32"]


class Block(NamedTuple):
    """Encoded documents: all token ids, the length of each sentence, the number of sentences of each document."""

    tokens: NDArray[np.unsignedinteger[Any]]
    sentences: NDArray[np.uint32]
    documents: NDArray[np.uint32]


class ShardWriter:
    """Appends blocks to the three files of a shard; `close` flushes them to disk and returns the record.

    Readers open only shards with a stored record, so the files of a crashed writer are ignored.
    """

    def __init__(self, folder: Path, name: str, split: Split, width: Width) -> None:
        self.name, self.split = name, split
        self._tokens = _ArrayFile(folder / f"{name}.tokens.bin", width)
        self._sentences = _ArrayFile(folder / f"{name}.sentences.bin", "uint32")
        self._documents = _ArrayFile(folder / f"{name}.documents.bin", "uint32")
        self._sentences.append(np.zeros(1, np.uint32))
        self._documents.append(np.zeros(1, np.uint32))

    def append(self, block: Block) -> None:
        """Append documents."""
        n_tokens, n_sentences = self._tokens.length, self._sentences.length - 1
        self._tokens.append(block.tokens)
        self._sentences.append(n_tokens + np.cumsum(block.sentences, dtype=np.int64))
        self._documents.append(n_sentences + np.cumsum(block.documents, dtype=np.int64))

    def close(self) -> ShardRecord:
        """Flush the files to disk and return their record."""
        files = (self._tokens, self._sentences, self._documents)
        return ShardRecord(
            name=self.name,
            split=self.split,
            documents=self._documents.length - 1,
            sentences=self._sentences.length - 1,
            tokens=self._tokens.length,
            files={file.path.name: file.close() for file in files},
        )

    def close_unfinished(self) -> None:
        """Close the files without a record."""
        for file in (self._tokens, self._sentences, self._documents):
            file.close_unfinished()


class _ArrayFile:
    def __init__(self, path: Path, width: Width) -> None:
        self.path, self.length = path, 0
        self._dtype = np.dtype(width).newbyteorder("<")
        self._file = path.open("wb")
        self._hash = hashlib.sha256()

    def append(self, values: NDArray[Any]) -> None:
        content = values.astype(self._dtype, copy=False).tobytes()
        self._file.write(content)
        self._hash.update(content)
        self.length += len(values)

    def close_unfinished(self) -> None:
        self._file.close()

    def close(self) -> FileRecord:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return FileRecord(self.length * self._dtype.itemsize, self._hash.hexdigest())
