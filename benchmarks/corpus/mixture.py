"""Draws pieces of the cleaned sources up to the words of a mixture, in one random order."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus.cleaning import Survey
from benchmarks.corpus.ngrams import Offsets

Flags = NDArray[np.bool_]


class Drawn(NamedTuple):
    """The pieces of a mixture in the order in which they are written."""

    files: Offsets
    pieces: Offsets
    words: Offsets


def draw(surveys: list[Survey], keeps: list[Flags], groups: list[str], limits: dict[str, int], seed: int) -> Drawn:
    """Draw about `limits[group]` words from the files of each group, a piece at most once.

    The order of a group depends on the seed only, so a higher limit adds pieces to the same selection.
    """
    words = [
        np.bincount(record.paragraph_pieces, record.paragraph_words * keep, len(record.piece_starts)).astype(np.int64)
        for record, keep in zip(surveys, keeps, strict=True)
    ]
    parts = []
    for group, limit in limits.items():
        members = [number for number, name in enumerate(groups) if name == group]
        sizes = np.concatenate([words[number] for number in members])
        files = np.repeat(members, [len(words[number]) for number in members])
        pieces = np.concatenate([np.arange(len(words[number])) for number in members])
        order = np.random.default_rng((seed, *group.encode())).permutation(len(sizes))
        order = order[sizes[order] > 0]
        order = order[: int(np.searchsorted(np.cumsum(sizes[order]), limit)) + 1]
        parts.append((files[order], pieces[order], sizes[order]))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    mixed = np.random.default_rng(seed).permutation(len(columns[0]))
    return Drawn(*(column[mixed] for column in columns))


def texts(paths: list[Path], surveys: list[Survey], keeps: list[Flags], drawn: Drawn) -> Iterator[bytes]:
    """Yield the drawn pieces: the paragraphs that are kept, one on each line."""
    # Lists, because indexing an array for one number is slow.
    firsts = [np.searchsorted(s.paragraph_pieces, np.arange(len(s.piece_starts) + 1)).tolist() for s in surveys]
    starts = [record.paragraph_starts.tolist() for record in surveys]
    ends = [record.paragraph_ends.tolist() for record in surveys]
    kept = [keep.tolist() for keep in keeps]
    contents: dict[int, mmap.mmap] = {}
    for file, piece in zip(drawn.files.tolist(), drawn.pieces.tolist(), strict=True):
        if file not in contents:
            with paths[file].open("rb") as opened:
                contents[file] = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        lines = range(firsts[file][piece], firsts[file][piece + 1])
        yield b"\n".join(contents[file][starts[file][line] : ends[file][line]] for line in lines if kept[file][line])
