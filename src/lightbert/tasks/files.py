"""The user's own files: the `data.*` keys of a recipe."""

from dataclasses import dataclass
from typing import Literal

from lightbert.data.row_file import BadRows
from lightbert.errors import InputError

KindName = Literal["auto", "classify", "labels", "regress", "tokens"]


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

    def __post_init__(self) -> None:
        if not 0 <= self.hold_out < 1:
            raise InputError(f"data.hold_out = {self.hold_out} must be at least 0 and below 1, such as 0.1")
        if not self.label_separator:
            raise InputError("data.label_separator is empty; give what stands between labels, such as ;")
