"""Writes one shard incrementally and computes the hashes of its files."""

import hashlib
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.corpus.manifest import FileRecord, ShardRecord, Split

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
