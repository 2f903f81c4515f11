"""Memory-mapped token shards: documents, which consist of sentences, which consist of token ids."""

import hashlib
import json
from bisect import bisect_right
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightbert.data.corpus import manifest
from lightbert.data.corpus.manifest import FileRecord, ShardRecord, Split
from lightbert.errors import InputError
from lightbert.files import hash_files

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
        self.manifest = manifest.read(self.folder)
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
