"""The tasks of GLUE as a table: files, columns, labels and metrics (Wang et al. 2019)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightbert.errors import unknown


@dataclass(frozen=True)
class Split:
    """The file names of a split, of which the first that exists is read, and its name on the Hugging Face Hub."""

    files: tuple[str, ...]
    hub: str


_SPLITS: Mapping[str, Split] = {
    "train": Split(("train.tsv",), "train"),
    "dev": Split(("dev.tsv",), "validation"),
    "test": Split(("test.tsv",), "test"),
}
_MNLI_SPLITS: Mapping[str, Split] = {
    "train": Split(("train.tsv",), "train"),
    "dev": Split(("dev_matched.tsv",), "validation_matched"),
    "dev_mismatched": Split(("dev_mismatched.tsv",), "validation_mismatched"),
    "test": Split(("test_matched.tsv",), "test_matched"),
    "test_mismatched": Split(("test_mismatched.tsv",), "test_mismatched"),
}
_AX_SPLITS: Mapping[str, Split] = {
    "test": Split(("diagnostic.tsv", "AX.tsv", "test.tsv", "diagnostic-full.tsv"), "test"),
}

_BINARY = {"0": "not_entailment", "1": "entailment"}
_TWO_WAY = {name: name for name in ("entailment", "not_entailment")}
_THREE_WAY = {name: name for name in ("entailment", "neutral", "contradiction")}


@dataclass(frozen=True)
class Row:
    """One task. Columns have several names: those of GLUE, and those of other releases of the same files."""

    folders: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...] = ()
    """Empty for single-sentence tasks."""
    label: tuple[str, ...] = ("label",)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Label in the files and on the leaderboard -> our name for it, in the order of the Hub's label ids; empty for
    STS-B, whose label is a number."""
    metric: str = "accuracy"
    symmetric: bool = False
    splits: Mapping[str, Split] = field(default_factory=lambda: _SPLITS)
    unnamed: tuple[str, ...] = ()
    """The columns of a file without a header."""

    @property
    def title(self) -> str:
        """The task's name as GLUE writes it."""
        return self.folders[0]


TABLE: Mapping[str, Row] = {
    "cola": Row(
        ("CoLA",),
        ("sentence",),
        labels={"0": "unacceptable", "1": "acceptable"},
        metric="mcc",
        unnamed=("source", "label", "star", "sentence"),
    ),
    "sst2": Row(("SST-2",), ("sentence",), labels={"0": "negative", "1": "positive"}),
    "mrpc": Row(
        ("MRPC",),
        ("#1 string", "sentence1"),
        ("#2 string", "sentence2"),
        label=("quality", "label"),
        labels={"0": "not_equivalent", "1": "equivalent"},
        symmetric=True,
    ),
    "stsb": Row(
        ("STS-B",), ("sentence1",), ("sentence2",), label=("score", "label"), metric="spearman", symmetric=True
    ),
    "qqp": Row(
        ("QQP",),
        ("question1",),
        ("question2",),
        label=("is_duplicate", "label"),
        labels={"0": "not_duplicate", "1": "duplicate"},
    ),
    "mnli": Row(
        ("MNLI",),
        ("sentence1", "premise"),
        ("sentence2", "hypothesis"),
        label=("gold_label", "label"),
        labels=_THREE_WAY,
        splits=_MNLI_SPLITS,
    ),
    "qnli": Row(("QNLI",), ("question",), ("sentence",), labels=_TWO_WAY),
    "rte": Row(("RTE",), ("sentence1",), ("sentence2",), labels=_TWO_WAY),
    "wnli": Row(("WNLI",), ("sentence1",), ("sentence2",), labels=_BINARY),
    "ax": Row(
        ("AX", "diagnostic"),
        ("sentence1", "premise"),
        ("sentence2", "hypothesis"),
        labels=_THREE_WAY,
        metric="mcc",
        splits=_AX_SPLITS,
    ),
}

LOW, HIGH = 0.0, 5.0
"""The range of STS-B scores."""

_ALIASES = {"sst": "sst2", "sts": "stsb", "diagnostic": "ax", "diagnostics": "ax"}


def find(spelling: str) -> str | None:
    """The key of a task in any of the usual spellings (SST-2, sst_2, sst2); None if GLUE has no such task."""
    plain = "".join(letter for letter in spelling.lower() if letter.isalnum())
    name = _ALIASES.get(plain, plain)
    return name if name in TABLE else None


def name_of(spelling: str) -> str:
    """Like `find`, but an unknown task is an error."""
    name = find(spelling)
    if name is None:
        raise unknown("GLUE task", spelling, TABLE)
    return name
