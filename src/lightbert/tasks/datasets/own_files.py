"""The user's own files: the `data.*` keys of a recipe."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from lightbert.config import check
from lightbert.data.text.row_file import BadRows
from lightbert.errors import InputError
from lightbert.ranges import PartialShare

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

    train: Annotated[str, "the file to train on"] = ""
    dev: Annotated[str, "the file that runs are evaluated on; without one a part of data.train is held out"] = ""
    test: Annotated[str, "a file that may be without labels"] = ""
    hold_out: Annotated[PartialShare, "the share of data.train to hold out if there is no data.dev; 0: nothing"] = 0.1
    kind: Annotated[KindName, "what the labels are; auto: decided by the training data"] = "auto"
    text: Annotated[str, "the column of the text"] = "text"
    text_b: Annotated[str, "the column of the second text, if there are pairs"] = ""
    label: Annotated[str, "the column of the label"] = "label"
    label_separator: Annotated[str, "what stands between several labels in one cell"] = ";"
    separator: Annotated[str, "what stands between the fields of .csv files"] = ","
    words: Annotated[str, "tagging: the column with the list of words"] = "words"
    tags: Annotated[str, "tagging: the column with the list of tags"] = "tags"
    word_column: Annotated[int, "CoNLL files: the column of the words, from 0; below 0 from the end"] = 0
    tag_column: Annotated[int, "CoNLL files: the column of the tags, likewise"] = -1
    comments: Annotated[str, "CoNLL files: lines before a sentence that begin so are skipped, such as #"] = ""
    bad_rows: Annotated[BadRows, "rows that can't be read are an error, or are skipped and counted"] = "error"
    folder: Annotated[str, "the folder of a task that has a name; data=FOLDER is short for it"] = ""

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
        check(self)
        if not self.label_separator:
            raise InputError("data.label_separator is empty; give what stands between labels, such as ;")


def _named(folder: Path, words: frozenset[str]) -> str:
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    found = [path for path in files if words.intersection(re.findall("[a-z]+", path.name.lower()))]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(f"'{folder}' has several files for one purpose: {names}; name them: data.train=…, data.dev=…")
    return str(found[0]) if found else ""
