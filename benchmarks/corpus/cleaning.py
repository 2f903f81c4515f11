"""Clean text: near-duplicates, repeated paragraphs and texts of evaluation sets are marked for removal.

A file is divided into pieces: documents, or parts of a long one that end with a paragraph. For every piece `Survey`
records its place, its paragraphs with a hash of their words and the evaluation sets they share an n-gram with, and a
sketch: one in sixteen of its 8-word shingles, chosen by hash (Broder's mod sketch). Sketches of two pieces contain the
same of their common shingles, so the share of a piece that already stands elsewhere is measured, not only the
resemblance of whole documents that MinHash estimates; one sort of all sketches finds it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus.evaluation_texts import EvaluationIndex
from benchmarks.corpus.ngrams import Hashes, NGrams, Offsets, Words

SHINGLE = 8
SKETCHED = 16  # one shingle in this many
PIECE_WORDS = 3000
REPEATED_WORDS = 12  # shorter paragraphs, such as headings, may be repeated
LEAST_SKETCH = 4
COPIED_SHARE = 0.5
DROPPED_HITS = 3  # a piece with more contaminated paragraphs is dropped whole

_CHUNK = 8 << 20
_BREAK = re.compile(rb"\n\n+")


Flags = NDArray[np.bool_]


class Survey(NamedTuple):
    """What cleaning has to know of a file; pieces and paragraphs are in the order of the text."""

    piece_starts: Offsets
    piece_ends: Offsets
    paragraph_starts: Offsets
    paragraph_ends: Offsets
    paragraph_words: NDArray[np.int32]
    paragraph_hashes: Hashes
    paragraph_sets: Hashes  # bit s: shares an n-gram with evaluation set s
    paragraph_pieces: Offsets
    sketch: Hashes
    sketch_pieces: Offsets


def survey(path: Path, index: EvaluationIndex) -> Survey:
    """Read a file of documents separated by blank lines."""
    parts, base, pieces = [_survey_chunk(b"", index)], 0, 0
    for chunk in _chunks(path):
        part = _survey_chunk(chunk, index)
        offsets = {"starts": base, "ends": base, "pieces": pieces}
        fields = part._asdict().items()
        parts.append(Survey(**{name: array + offsets.get(name.split("_")[-1], 0) for name, array in fields}))
        pieces += len(part.piece_starts)
        base += len(chunk)
    return Survey(*map(np.concatenate, zip(*parts, strict=True)))


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        rest = b""
        while block := file.read(_CHUNK):
            rest += block
            end = rest.rfind(b"\n\n") + 2
            if end > 1:
                yield rest[:end]
                rest = rest[end:]
        if rest:
            yield rest


def _survey_chunk(text: bytes, index: EvaluationIndex) -> Survey:
    words = Words.of(text)
    newlines = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    bounds = np.concatenate(([-1], newlines, [len(text)]))
    first_words = np.searchsorted(words.starts, bounds[:-1] + 1)
    counts = np.diff(np.append(first_words, len(words.starts)))
    lines = np.flatnonzero(counts)  # lines with a word are the paragraphs
    firsts, sizes = first_words[lines], counts[lines]
    # A paragraph begins a document if a blank line precedes it.
    blank = np.diff(bounds) == 1
    before = np.concatenate(([0], np.cumsum(blank)))[lines]
    begins = np.append(True, before[1:] != before[:-1])[: len(lines)]
    # Long documents are cut where the count of their words passes a multiple of PIECE_WORDS.
    document = np.cumsum(begins) - 1
    read = firsts - firsts[begins][document]
    part = read // PIECE_WORDS
    begins |= np.append(True, part[1:] != part[:-1])[: len(lines)]
    pieces = np.cumsum(begins) - 1
    starts, ends = bounds[lines] + 1, bounds[lines + 1]
    last = np.append(np.flatnonzero(begins), len(lines))[1:] - 1
    grams = NGrams(words.hashes)
    word_paragraphs = np.repeat(np.arange(len(lines)), sizes)
    shingles = grams.grow(SHINGLE)
    sampled = np.flatnonzero(shingles < np.uint64((1 << 64) // SKETCHED))
    sets = np.zeros(len(lines), np.uint64)
    for at, bits in index.hits(grams):
        np.bitwise_or.at(sets, word_paragraphs[at], bits)
    return Survey(
        starts[begins], ends[last], starts, ends, sizes.astype(np.int32), words.group_hashes(firsts), sets, pieces,
        shingles[sampled], pieces[word_paragraphs[sampled]],
    )  # fmt: skip


class Decision(NamedTuple):
    """Which paragraphs of a file stay, and the words that each step removed."""

    keep: Flags
    contaminated: int
    repeated: int
    near_duplicate: int
    sets: dict[str, int]  # contaminated paragraphs by evaluation set


def decide(surveys: list[Survey], names: list[str]) -> list[Decision]:
    """Decide for all files together; of copies, the one in the first file is kept."""
    bases = np.cumsum([0] + [len(record.piece_starts) for record in surveys])
    copied = _copied(
        np.concatenate([record.sketch for record in surveys]),
        np.concatenate([record.sketch_pieces + base for record, base in zip(surveys, bases, strict=False)]),
        int(bases[-1]),
    )
    repeated = _repeated(
        np.concatenate([record.paragraph_hashes for record in surveys]),
        np.concatenate([record.paragraph_words for record in surveys]),
    )
    repeated_by_file = np.split(repeated, np.cumsum([len(record.paragraph_words) for record in surveys])[:-1])
    copied_by_file = np.split(copied, bases[1:-1])
    return [_decide(*arguments, names) for arguments in zip(surveys, copied_by_file, repeated_by_file, strict=True)]


def _decide(record: Survey, copied: Flags, repeated: Flags, names: list[str]) -> Decision:
    words, pieces, count = record.paragraph_words, record.paragraph_pieces, len(record.piece_starts)
    shared = record.paragraph_sets != 0
    contaminated = shared | (np.bincount(pieces[shared], minlength=count) > DROPPED_HITS)[pieces]
    near_duplicate = copied[pieces] & ~contaminated
    repeated = repeated & ~contaminated & ~near_duplicate
    keep = ~(contaminated | near_duplicate | repeated)
    keep &= (np.bincount(pieces, keep * words, count) >= REPEATED_WORDS)[pieces]  # drop what is left of a short piece
    sets = {name: int((record.paragraph_sets >> np.uint64(bit) & np.uint64(1)).sum()) for bit, name in enumerate(names)}
    removed = {"contaminated": contaminated, "repeated": repeated, "near_duplicate": near_duplicate}
    sums = {name: int(words[flags].sum()) for name, flags in removed.items()}
    return Decision(keep, **sums, sets={name: paragraphs for name, paragraphs in sets.items() if paragraphs})


def _copied(sketch: Hashes, pieces: Offsets, count: int) -> Flags:
    """Return which pieces have at least half of their sketch in earlier pieces."""
    order = np.argsort(sketch, kind="stable")  # pieces ascend, so those of one shingle stay in order
    shingles, owners = sketch[order], pieces[order]
    heads = np.append(True, shingles[1:] != shingles[:-1])
    firsts = owners[heads][np.cumsum(heads) - 1]
    size = np.bincount(owners, minlength=count)
    earlier = np.bincount(owners[firsts < owners], minlength=count)
    return np.asarray((size >= LEAST_SKETCH) & (earlier >= COPIED_SHARE * size))


def _repeated(hashes: Hashes, words: NDArray[np.int32]) -> Flags:
    long = np.flatnonzero(words >= REPEATED_WORDS)
    _, firsts = np.unique(hashes[long], return_index=True)
    repeated = np.zeros(len(hashes), bool)
    repeated[long] = True
    repeated[long[firsts]] = False
    return repeated
