"""Custom files: the `data.*` keys of a recipe."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from lightbert.config import PartialShare, check
from lightbert.data.text_files import BadRows
from lightbert.errors import InputError

READING = (
    "text",
    "text_b",
    "label",
    "label_separator",
    "separator",
    "words",
    "tags",
    "word_column",
    "tag_column",
    "comments",
)
"""The fields of `Files` that say how a file is read; they are saved with a fine-tuned model."""

KindName = Literal["auto", "classify", "labels", "regress", "tokens"]

_SPLIT_NAMES = {
    "train": frozenset({"train", "training"}),
    "dev": frozenset({"dev", "valid", "validation", "val", "testa"}),
    "test": frozenset({"test", "testb"}),
}


@dataclass(frozen=True)
class Files:
    """The files to read, and their columns.

    Tables (.csv, .tsv, .jsonl, .parquet) contain texts or pairs of texts with labels, or lists of words and of tags.
    Files with any other suffix contain tagged sentences in CoNLL columns. All but Parquet may be compressed.
    """

    train: Annotated[str, "the file to train on"] = ""
    dev: Annotated[str, "the file to evaluate on; without it, a part of data.train is held out"] = ""
    test: Annotated[str, "the test file; labels are optional"] = ""
    hold_out: Annotated[PartialShare, "the fraction of data.train to hold out if there is no data.dev; 0: none"] = 0.1
    kind: Annotated[KindName, "the kind of labels; auto: inferred from the training data"] = "auto"
    text: Annotated[str, "the column of the text"] = "text"
    text_b: Annotated[str, "the column of the second text, for pairs"] = ""
    label: Annotated[str, "the column of the label"] = "label"
    label_separator: Annotated[str, "the separator between several labels in one cell"] = ";"
    separator: Annotated[str, "the field separator of .csv files"] = ","
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
        found = {split: _find_file(Path(path), words) for split, words in _SPLIT_NAMES.items()}
        if not any(found.values()):
            raise InputError(
                f"folder '{path}' must contain a file named train, dev or test; or name the files: data.train=…"
            )
        return cls(found["train"], found["dev"], found["test"])

    def reading(self) -> dict[str, Any]:
        """The settings with which other files of the same form can be read."""
        return {name: getattr(self, name) for name in READING}

    def __post_init__(self) -> None:
        check(self)
        if not self.label_separator:
            raise InputError("data.label_separator must not be empty; give a separator such as ;")


def _find_file(folder: Path, words: frozenset[str]) -> str:
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    found = [path for path in files if words.intersection(re.findall("[a-z]+", path.name.lower()))]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(
            f"folder '{folder}' must contain one file per split, got {names}; name the files: data.train=…, data.dev=…"
        )
    return str(found[0]) if found else ""
