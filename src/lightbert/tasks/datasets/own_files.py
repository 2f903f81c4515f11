"""The user's own files: the `data.*` keys of a recipe."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lightbert.data.text.row_file import BadRows
from lightbert.errors import InputError

KindName = Literal["auto", "classify", "labels", "regress", "tokens"]

_WORDS = {
    "train": frozenset({"train", "training"}),
    "dev": frozenset({"dev", "valid", "validation", "val", "testa"}),
    "test": frozenset({"test", "testb"}),
}


@dataclass(frozen=True)
class Files:
    """Which files to read, and which of their columns.

    Tables (.csv, .tsv, .jsonl, .parquet) hold texts or pairs of texts with their labels; CoNLL columns (any other
    ending), and tables with lists of words and of tags, hold sentences. All but Parquet may be compressed.
    """

    train: str = ""
    dev: str = ""
    """What runs are judged by; without it a part of `train` is held out."""
    test: str = ""
    """May be without labels."""
    hold_out: float = 0.1
    """The share of `train` that is held out when there is no `dev`; 0 = nothing."""
    kind: KindName = "auto"
    """What the labels are; "auto" tells by the training data (see `own.py`)."""
    text: str = "text"
    text_b: str = ""
    """The column of the second text, if there are pairs."""
    label: str = "label"
    label_separator: str = ";"
    """What stands between the labels of a multi-label cell that is text, not a list."""
    separator: str = ","
    """What stands between the fields of .csv files."""
    words: str = "words"
    tags: str = "tags"
    word_column: int = 0
    """CoNLL files: the column of the words, counted from 0; below 0 from the end."""
    tag_column: int = -1
    comments: str = ""
    """CoNLL files: lines before a sentence that begin so are no words, such as "#"; none unless it is given."""
    bad_rows: BadRows = "error"
    folder: str = ""
    """Where the files of a task are that has a name, such as mnli or tokens; `data=FOLDER` is short for it."""

    @classmethod
    def at(cls, path: str) -> "Files":
        """Find the files of a folder by the words of their names, such as eng.testa; a single file is `dev`."""
        if not Path(path).is_dir():
            return cls(dev=path)
        found = {split: _named(Path(path), words) for split, words in _WORDS.items()}
        if not any(found.values()):
            raise InputError(f"the folder '{path}' has no file called train, dev or test; name the files: data.train=…")
        return cls(found["train"], found["dev"], found["test"])

    def __post_init__(self) -> None:
        if not 0 <= self.hold_out < 1:
            raise InputError(f"data.hold_out = {self.hold_out} must be at least 0 and below 1, such as 0.1")
        if not self.label_separator:
            raise InputError("data.label_separator is empty; give what stands between labels, such as ;")


def _named(folder: Path, words: frozenset[str]) -> str:
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    found = [path for path in files if words.intersection(re.findall("[a-z]+", path.name.lower()))]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(f"'{folder}' has several files for one purpose: {names}; name them: data.train=…, data.dev=…")
    return str(found[0]) if found else ""
