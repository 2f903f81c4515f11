"""A search index: the vectors and texts of files in a folder, searched exactly.

The folder contains `index.json` and, for every 16,384 texts of a file, a part: `NAME.npy`, float16 vectors of length 1,
and `NAME.jsonl`, the ids and texts. `index.json` is rewritten after each part, so that indexing resumes after the last
one. A file is indexed again only if it, or the way to read it, has changed.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256 as hash_of
from pathlib import Path
from typing import Any

import numpy as np

from lightbert.data.tables import TableOptions
from lightbert.data.text_files import BadRows, text_lines
from lightbert.errors import InputError
from lightbert.files import LOCK, file_atomic, locked, make_folder, read_text, sha256, write_atomic
from lightbert.tasks.predict.inputs import Fields
from lightbert.tasks.predict.neighbours import Places, cluster, duplicates, nearest
from lightbert.tasks.predict.predictor import Described
from lightbert.tasks.predict.records import open_records, text_records
from lightbert.tasks.predict.vectors import DOCUMENTS, QUERIES, Embedder, Floats, unit_embedder

FILE = "index.json"
FORMAT = 1
PARAGRAPHS = (".md", ".txt", ".rst")
"""The files of a folder that are indexed; each of their paragraphs is a text."""
_PART = 16384
_PROBE = "The same model gives this sentence the same vector."
_MIN_COSINE = 0.99
_WORDS, _EXAMPLES = 5, 3


@dataclass(frozen=True)
class Reading:
    """How tables are read: the columns of the text and of the id ("" = row numbers), the separator of .csv files."""

    text: str = "text"
    id: str = ""
    separator: str = ","
    bad_rows: BadRows = "error"


def sources(paths: Iterable[str]) -> list[Path]:
    """The files to index: the paths, and instead of a folder the files in it whose paragraphs are texts."""
    files = []
    for path in map(Path, paths):
        inside = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in PARAGRAPHS and file.is_file()]
        if path.is_dir() and not inside:
            raise InputError(
                f"'{path}' must contain files that end in {', '.join(PARAGRAPHS)}; give the path of a table"
            )
        if not path.exists():
            raise InputError(f"'{path}' not found; check the path")
        files += inside if path.is_dir() else [path]
    return files


def read_rows(path: Path, reading: Reading, *, paragraphs: bool = False) -> Iterator[dict[str, Any]]:
    """The id and the text of each row of a table, each line of a .txt file, or each paragraph."""
    if paragraphs or path.suffix.lower() == ".md":
        texts = enumerate(_paragraphs(path), start=1)
        yield from ({"id": f"{path.name}:{number}", "text": text} for number, text in texts)
        return
    # A line of a .txt file has the field "text".
    fields = Fields(text=tuple(dict.fromkeys((reading.text, "text"))), text_b=())
    keep = (reading.id,) if reading.id else ()
    options = TableOptions(reading.separator, bad_rows=reading.bad_rows)
    with open_records(str(path), fields, options) as source:
        for number, (record, example) in enumerate(text_records(source, fields, keep), start=1):
            yield {"id": str(record[reading.id]) if keep else f"{path.name}:{number}", "text": example.text}


def _paragraphs(path: Path) -> Iterator[str]:
    """Blocks of lines between empty lines; a heading of Markdown belongs to the paragraph after it."""
    heading: list[str] = []
    for is_text, lines in itertools.groupby((line.strip() for line in text_lines(path)), bool):
        block = [*heading, *lines] if is_text else heading
        heading = block if block and block[-1].startswith("#") else []
        if is_text and not heading:
            yield " ".join(block)


class SearchIndex:
    """An index in a folder; without `index.json`, an empty one that `add` creates.

    model: it must be the one that made the index, or an exported file of it.
    """

    def __init__(self, folder: str | Path, model: Described, name: str = "", *, batch: int = 0) -> None:
        self.folder, self._model, self._batch = Path(folder), model, batch
        self.cut = 0
        """The number of texts truncated so far."""
        self.description = read_description(self.folder) or {"format": FORMAT, "model": name, "probe": [], "files": {}}
        probe = unit_embedder(model, batch=batch).encode([_PROBE])[0]
        known = self.description["probe"]
        if known and (len(known) != len(probe) or float(probe @ np.array(known, np.float32)) < _MIN_COSINE):
            raise InputError(
                f"the index '{self.folder}' was made by another model, {self.description['model']}: the vectors "
                "differ; give that model, or make another index"
            )
        self.description["probe"] = probe.tolist()

    def add(
        self,
        paths: Sequence[str],
        reading: Reading | None = None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Index files and folders, and return the number of new texts; files that haven't changed are left out.

        advance: called with the number of vectors of each chunk.
        """
        files, reading, added = sources(paths), reading or Reading(), 0
        folders = [Path(path) for path in paths if Path(path).is_dir()]
        make_folder(self.folder)
        with locked(self.folder, "is indexing in", "wait until it is finished"):
            embedder = unit_embedder(self._model, DOCUMENTS, self._batch)
            for file in files:
                paragraphs = any(file.is_relative_to(folder) for folder in folders)
                added += self._add(file, read_rows(file, reading, paragraphs=paragraphs), reading, embedder, advance)
            self.cut += embedder.cut
            listed = {part for _, part, _ in self._parts}
            for path in self.folder.iterdir():
                if path.suffix in (".npy", ".jsonl") and path.stem not in listed:
                    # A part of a file that has changed.
                    path.unlink()
        self.__dict__.pop("vectors", None)
        return added

    def _add(
        self,
        path: Path,
        rows: Iterator[dict[str, Any]],
        reading: Reading,
        embedder: Embedder,
        advance: Callable[[int], None],
    ) -> int:
        files: dict[str, dict[str, Any]] = self.description["files"]
        name = str(path.resolve())
        content = hash_of(f"{sha256(path)} {asdict(reading)}".encode()).hexdigest()
        entry = files.get(name, {})
        if entry.get("hash") != content:
            entry = {"hash": content, "parts": [], "rows": [], "complete": False}
        if entry["complete"]:
            return 0
        done = sum(entry["rows"])
        rows = itertools.islice(rows, done, None)
        while part := list(itertools.islice(rows, _PART)):
            used = {int(number) for other in (*files.values(), entry) for number in other["parts"]}
            number = f"{max(used, default=0) + 1:06}"
            vectors = []
            for chunk in embedder.stream(row["text"] for row in part):
                vectors.append(chunk.astype(np.float16))
                advance(len(chunk))
            with file_atomic(self.folder / f"{number}.npy") as temporary, temporary.open("wb") as file:
                np.save(file, np.concatenate(vectors))
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in part)
            write_atomic(self.folder / f"{number}.jsonl", "".join(lines))
            entry = {**entry, "parts": [*entry["parts"], number], "rows": [*entry["rows"], len(part)]}
            files[name] = entry
            self._write()
        files[name] = {**entry, "complete": True}
        self._write()
        return int(sum(entry["rows"]) - done)

    def _write(self) -> None:
        write_atomic(self.folder / FILE, json.dumps(self.description, indent=1, ensure_ascii=False) + "\n")

    @property
    def _parts(self) -> list[tuple[str, str, int]]:
        """The file, the name and the number of rows of each part."""
        return [
            (file, part, rows)
            for file, entry in self.description["files"].items()
            for part, rows in zip(entry["parts"], entry["rows"], strict=True)
        ]

    def __len__(self) -> int:
        return sum(part[2] for part in self._parts)

    @cached_property
    def vectors(self) -> Floats:
        """All vectors [N, D]."""
        width = len(self.description["probe"])
        vectors = np.zeros((len(self), width), np.float32)
        ends = itertools.accumulate(rows for _, _, rows in self._parts)
        for (_, part, rows), end in zip(self._parts, ends, strict=True):
            path = self.folder / f"{part}.npy"
            with _intact(path):
                vectors[end - rows : end] = np.load(path)
        return vectors

    def rows(self, places: Iterable[int]) -> list[dict[str, Any]]:
        """The ids, texts and files of some vectors."""
        starts = np.cumsum([0, *(rows for _, _, rows in self._parts)])
        lines: dict[str, list[str]] = {}
        found = []
        for place in places:
            number = int(np.searchsorted(starts, place, side="right")) - 1
            file, part, _ = self._parts[number]
            path = self.folder / f"{part}.jsonl"
            with _intact(path):
                if part not in lines:
                    # Not splitlines: texts contain other line ends.
                    lines[part] = path.read_text(encoding="utf-8").split("\n")
                found.append({**json.loads(lines[part][place - int(starts[number])]), "file": file})
        return found

    def search(self, queries: Sequence[str], count: int = 10) -> list[list[dict[str, Any]]]:
        """For each query the texts with the largest cosines: id, text, file and score."""
        vectors = unit_embedder(self._model, QUERIES, self._batch).encode(queries)
        return [self._scored(places, scores) for places, scores in nearest(vectors, self.vectors, count)]

    def _scored(self, places: Places, scores: Floats) -> list[dict[str, Any]]:
        rows = zip(self.rows(places.tolist()), scores.tolist(), strict=True)
        return [{"score": round(score, 4), **row} for row, score in rows]

    def duplicates(self, threshold: float = 0.95) -> list[list[dict[str, Any]]]:
        """Groups of texts connected by cosines of at least `threshold`, the largest first."""
        groups = duplicates(self.vectors, threshold)
        return [self._scored(*map(np.array, zip(*group, strict=True))) for group in groups]

    def clusters(self, count: int) -> list[dict[str, Any]]:
        """Clusters of the texts, the largest first: their texts, nearest to the centre first, and typical words."""
        if not 0 < count <= len(self):
            raise InputError(f"the number of clusters must be in [1, {len(self)}], the texts of the index, got {count}")
        numbers, centres = cluster(self.vectors, count)
        cosines = (self.vectors * centres[numbers]).sum(1)
        groups = []
        for number in np.argsort(-np.bincount(numbers, minlength=count), kind="stable"):
            members = np.flatnonzero(numbers == number)
            members = members[np.argsort(-cosines[members], kind="stable")]
            groups.append(self._scored(members, cosines[members]))
        everywhere = _frequencies(row for group in groups for row in group)
        return [{"words": _typical(group, everywhere, len(self)), "texts": group} for group in groups if group]


def _frequencies(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """The number of texts that contain each word of at least three letters."""
    return Counter(word for row in rows for word in set(re.findall(r"[^\W\d_]{3,}", row["text"].lower())))


def _typical(group: Sequence[Mapping[str, Any]], everywhere: Counter[str], total: int) -> list[str]:
    """The words that are more frequent in a group than everywhere, and rare everywhere (TF-IDF times the lift)."""
    share = {word: count / len(group) for word, count in _frequencies(group).items()}
    rarity = {word: total / everywhere[word] for word in share}
    gain = {word: part * math.log(rarity[word]) * math.log(part * rarity[word]) for word, part in share.items()}
    return sorted(gain, key=lambda word: (-gain[word], word))[:_WORDS]


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    """Raise an InputError if a file of the index can't be read."""
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"'{path}' is damaged ({type(error).__name__}: {error}); make the index again") from None


def read_description(folder: Path) -> dict[str, Any] | None:
    """What `index.json` says; None if the folder doesn't exist or is empty."""
    path = folder / FILE
    if not path.exists():
        if folder.exists() and not (folder.is_dir() and {inside.name for inside in folder.iterdir()} <= {LOCK}):
            raise InputError(f"'{folder}' is not a search index; choose another name for the index")
        return None
    with _intact(path):
        description: dict[str, Any] = json.loads(read_text(path, limit=1 << 30))
        if description["format"] != FORMAT:
            raise InputError(f"the format of '{path}' must be {FORMAT}, got {description['format']!r}")
    return description
