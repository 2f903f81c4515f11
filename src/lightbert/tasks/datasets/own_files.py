"""Custom files: their keys in a recipe, the cells of a label column, and the part that is held out."""

import ast
import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from lightbert.config import PartialShare, check
from lightbert.data.tables import TableOptions
from lightbert.data.text_files import BadRows, check_encoding
from lightbert.errors import InputError
from lightbert.tasks.example import Example, Examples, TaggedSentence
from lightbert.tasks.kinds import KindName

if TYPE_CHECKING:
    from lightbert.tasks.kinds.kind import Kind

READING = (
    "text",
    "text_b",
    "label",
    "label_separator",
    "separator",
    "header",
    "words",
    "tags",
    "word_column",
    "tag_column",
    "comments",
)
"""The fields of `Files` that say how a file is read; they are saved with a fine-tuned model."""

_SPLIT_NAMES = {
    "train": frozenset({"train", "training"}),
    "dev": frozenset({"dev", "valid", "validation", "val", "testa"}),
    "test": frozenset({"test", "testb"}),
}


@dataclass(frozen=True)
class Files:
    """The files to read, and their columns.

    Tables (.csv, .tsv, .jsonl, .json, .parquet, .xlsx) contain texts or pairs of texts with labels, or lists of words
    and of tags. Files with any other suffix contain tagged sentences in CoNLL columns. All but Parquet and Excel may be
    compressed.
    """

    train: Annotated[str, "the file to train on"] = ""
    dev: Annotated[str, "the file to evaluate on; without it, a part of data.train is held out"] = ""
    test: Annotated[str, "the test file; labels are optional"] = ""
    hold_out: Annotated[PartialShare, "the fraction of data.train to hold out if there is no data.dev; 0: none"] = 0.1
    kind: Annotated[KindName, "the kind of labels; auto: inferred from the training data"] = "auto"
    text: Annotated[str, "the column of the text"] = "text"
    text_b: Annotated[str, "the column of the second text, for pairs"] = ""
    label: Annotated[str, "the column of the label"] = "label"
    negative: Annotated[str, "vectors-pairs: the column of a text that must not be near the first one"] = ""
    weight: Annotated[str, "vectors-pairs: the column of the weight of a pair"] = ""
    prompt: Annotated[str, "vectors: what precedes each text, then a space; the model's prompt query"] = ""
    prompt_b: Annotated[str, "vectors: what precedes each second text; the model's prompt document"] = ""
    label_separator: Annotated[str, "the separator between several labels in one cell"] = ";"
    separator: Annotated[str, "the field separator of .csv files"] = ","
    header: Annotated[
        Literal["first", "none"], "whether the first row has the names of the columns; none: they are 0, 1, 2, …"
    ] = "first"
    encoding: Annotated[str, "the encoding of files but Parquet and Excel, such as latin-1"] = "utf-8"
    words: Annotated[str, "tagging: the column with the list of words"] = "words"
    tags: Annotated[str, "tagging: the column with the list of tags"] = "tags"
    word_column: Annotated[int, "CoNLL files: the index of the word column, from 0; negative: from the end"] = 0
    tag_column: Annotated[int, "CoNLL files: the index of the tag column, likewise"] = -1
    comments: Annotated[
        str, "CoNLL files: the prefix of comment lines before a sentence, such as #; they are skipped"
    ] = ""
    bad_rows: Annotated[BadRows, "rows that can't be read are an error, or are skipped and counted"] = "error"
    folder: Annotated[str, "the folder of a named task; data=FOLDER is a shorthand"] = ""

    @classmethod
    def at(cls, path: str) -> "Files":
        """Find the files of a folder by words in their names, such as eng.testa; a single file becomes `dev`."""
        if not Path(path).is_dir():
            return cls(dev=path)
        files = {split: _find_file(Path(path), words) for split, words in _SPLIT_NAMES.items()}
        if not any(files.values()):
            raise InputError(
                f"folder '{path}' must contain a file named train, dev or test; or name the files: data.train=…"
            )
        return cls(files["train"], files["dev"], files["test"])

    def reading(self) -> dict[str, Any]:
        """The settings with which other files of the same form can be read."""
        return {name: getattr(self, name) for name in READING}

    def table_options(self) -> TableOptions:
        """How tables are read."""
        return TableOptions(self.separator, self.encoding, self.header, self.bad_rows)

    def __post_init__(self) -> None:
        check(self)
        check_encoding(self.encoding)
        if not self.label_separator:
            raise InputError("data.label_separator must not be empty; give a separator such as ;")


def _find_file(folder: Path, words: frozenset[str]) -> str:
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    matches = [path for path in files if words.intersection(re.findall("[a-z]+", path.name.lower()))]
    if len(matches) > 1:
        names = ", ".join(path.name for path in matches)
        raise InputError(
            f"folder '{folder}' must contain one file per split, got {names}; name the files: data.train=…, data.dev=…"
        )
    return str(matches[0]) if matches else ""


_SEPARATORS = ("|", ";", ",", "/")

# Fractions are classes rather than regression targets if there are few distinct ones, with several rows each.
_MAX_NUMERIC_CLASSES = 10
_MIN_ROWS_PER_CLASS = 3
_MIN_NUMERIC_SHARE = 0.9
# How tables write a number that is missing.
_MISSING = ("", "nan", "na", "n/a", "none", "null")


def infer_kind(cells: Sequence[Any]) -> "type[Kind[Example]]":
    """Infer the kind of task from the training labels.

    Lists mean multi-label classification. Numbers mean regression if some are not integers and there are more than ten
    distinct values, or more than one for every three rows; up to 10 % of the cells may be non-numeric, and any number
    may be missing (empty or "nan"), and are bad rows then. Everything else means classification, including any number
    of distinct integers.
    """
    from lightbert.tasks.kinds.classify import Classify, Labels
    from lightbert.tasks.kinds.kind import parse_number
    from lightbert.tasks.kinds.regress import Regress

    if any(isinstance(cell, list) for cell in cells):
        return Labels
    numbers = [number for cell in cells if (number := parse_number(cell)) is not None]
    distinct = len(set(numbers))
    many = distinct > _MAX_NUMERIC_CLASSES or distinct * _MIN_ROWS_PER_CLASS > len(numbers)
    has_fractions = not all(number.is_integer() for number in numbers)
    present = sum(str(cell).strip().lower() not in _MISSING for cell in cells)
    return Regress if many and has_fractions and len(numbers) >= _MIN_NUMERIC_SHARE * present else Classify


def as_list(cell: Any) -> Any:
    """Parse a text that is a list, as pandas writes lists to a CSV file; return other cells as they are."""
    if not isinstance(cell, str) or not cell.startswith("[") or not cell.endswith("]"):
        return cell
    try:
        items = ast.literal_eval(cell)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return cell
    # NumPy writes no commas, and Python joins 'a' 'b'.
    joined = re.search(r"""['"]\s+['"]""", cell)
    return items if not joined and all(type(item) in (str, int, float) for item in items) else cell


def separator_of_joined(names: Collection[str]) -> str:
    """The separator if some names seem to be several labels in one cell, such as "a|b" next to "a" and "b"; or ""."""
    for separator in _SEPARATORS:
        parts = {part.strip() for name in names for part in name.split(separator)}
        if len(parts) < len(names) and any(separator in name for name in names):
            return separator
    return ""


def unknown_label(what: str, name: str, known: Collection[str]) -> str:
    """The reason to reject a label that isn't known."""
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    return f"has the {what} {name!r}, which must occur in the training data{hint}"


E = TypeVar("E", Example, TaggedSentence)


def hold_out(examples: Sequence[E], share: float) -> tuple[Examples[E], Examples[E]]:
    """Split examples into training and held-out ones; the texts with the smallest hashes are held out.

    So the split depends neither on the order of the rows nor on a seed, hardly changes when rows are added, and keeps
    duplicates together: no held-out text occurs in the training data. Skipped rows of the file count for both parts.
    """
    hashes = [_hash(example) for example in examples]
    limit = sorted(hashes)[max(1, round(share * len(examples))) - 1] if examples else 0
    skipped = examples.skipped if isinstance(examples, Examples) else 0
    parts: tuple[Examples[E], Examples[E]] = Examples((), skipped), Examples((), skipped)
    for example, value in zip(examples, hashes, strict=True):
        parts[value <= limit].append(example)
    if not parts[0]:
        raise InputError(
            f"holding out {share:g} of the texts requires more distinct texts, got {len(set(hashes))}; give "
            "data.dev, or data.hold_out=0 to train without evaluation"
        )
    return parts


def _hash(example: Example | TaggedSentence) -> int:
    texts = example.words if isinstance(example, TaggedSentence) else (example.text, example.text_b or "")
    return int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest())
