"""The texts of evaluation sets, and the n-grams that the corpus may not share with them."""

import io
import json
import lzma
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus.ngrams import Hashes, NGrams, Words
from benchmarks.corpus.repositories import list_files, read_files

LONG = 13  # words of an n-gram; a text of SHORT words or more that is shorter than this is compared as a whole
SHORT = 8
_FILTER_BITS = 25


class EvaluationIndex:
    """All n-grams of the evaluation sets."""

    def __init__(self, texts: dict[str, list[str]]) -> None:
        self.names = list(texts)
        grams, bits = [], []
        for bit, found in enumerate(texts.values()):
            hashes = np.unique(_grams(found))
            grams.append(hashes)
            bits.append(np.full(len(hashes), 1 << bit, np.uint64))
        self._grams, places = np.unique(np.concatenate(grams), return_inverse=True)
        self._bits = np.zeros(len(self._grams), np.uint64)
        np.bitwise_or.at(self._bits, places, np.concatenate(bits))
        self._filter = np.zeros(1 << _FILTER_BITS, bool)
        self._filter[_prefixes(self._grams)] = True

    def __len__(self) -> int:
        return len(self._grams)

    def hits(self, grams: NGrams) -> Iterator[tuple[NDArray[np.intp], Hashes]]:
        """Yield the first words of shared n-grams, and the sets (as bits) that have them."""
        for n in range(SHORT, LONG + 1):
            hashes = grams.grow(n)
            candidates = np.flatnonzero(self._filter[_prefixes(hashes)])
            places = np.searchsorted(self._grams, hashes[candidates])
            places[places == len(self._grams)] = 0
            found = self._grams[places] == hashes[candidates]
            yield candidates[found], self._bits[places[found]]


def _prefixes(hashes: Hashes) -> NDArray[np.intp]:
    return (hashes >> np.uint64(64 - _FILTER_BITS)).astype(np.intp)


def _grams(texts: list[str]) -> Hashes:
    """Return the hashes of the 13-grams of texts, and of texts of 8 to 12 words as a whole."""
    joined = "\n".join(" ".join(text.split()) for text in texts).encode()
    words = Words.of(joined)
    owners = np.searchsorted(np.flatnonzero(np.frombuffer(joined, np.uint8) == ord("\n")), words.starts)
    sizes = np.bincount(owners, minlength=len(texts))
    grams = NGrams(words.hashes)
    found = []
    for n in range(SHORT, LONG + 1):
        hashes = grams.grow(n)
        inside = owners[: len(hashes)] == owners[n - 1 :]
        found.append(hashes[inside & (n == LONG or sizes[owners[: len(hashes)]] == n)])
    return np.concatenate(found)


def read_sets(table: Path, mirrors: Path, data: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Return the texts of every set in the table that is at hand, and the names of the others."""
    texts: dict[str, list[str]] = {}
    absent = []
    for entry in tomllib.loads(table.read_text("utf-8"))["sets"]:
        if "files" in entry:
            files = [(path.name, path.read_bytes()) for path in sorted(data.glob(entry["files"]))]
        else:
            repository = mirrors / entry["repository"].replace("/", "+") / "repo"
            files = []
            if repository.exists():
                files = list(read_files(repository, list_files(repository, "HEAD", entry["paths"])))
        if files:
            layout = entry.get("layout", "lines")
            texts[entry["name"]] = [text for name, content in files for text in _texts(name, content, layout)]
        else:
            absent.append(entry["name"])
    return texts, absent


def _texts(name: str, content: bytes, layout: str) -> Iterator[str]:
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                if not member.endswith("/"):
                    yield from _texts(member, archive.read(member), layout)
        return
    if name.endswith(".xz"):
        content = lzma.decompress(content)
    text = content.decode("utf-8-sig", "replace")
    if layout == "json":
        yield from _strings(json.loads(text))
    elif layout == "tokens":
        for sentence in text.split("\n\n"):
            yield " ".join(row.split()[0] for row in sentence.split("\n") if row.strip())
    else:
        yield from (cell for row in text.splitlines() for cell in row.split("\t"))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _strings(child)
