"""GLUE: nine tasks on English sentences and sentence pairs, and the diagnostic set AX."""

from collections.abc import Callable
from functools import partial
from typing import Any

from lightbert.data.text_files import BadRows
from lightbert.tasks.datasets.glue import hub, tsv
from lightbert.tasks.datasets.glue.table import HIGH, LOW, TABLE, name_of
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.example import Example
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.regress import Regress

HUB = ("", "hub")
"""Values of ``data`` that select the Hugging Face Hub."""

# A missing file is an error for these splits; the mismatched splits of MNLI are optional.
_REQUIRED = ("train", "dev", "test")


def open_glue(name: str, data: str = "", *, bad_rows: BadRows = "error") -> Task:
    """Open a task by its name in any of the usual spellings.

    The scores of STS-B are scaled to [0, 1] (ELECTRA, ConvBERT), unless the kind is replaced by an unscaled one.

    data: the folder of the task, its parent folder, or "hub".
    bad_rows: "error" or "skip", for rows with a wrong number of columns or an invalid label.
    """
    name = name_of(name)
    row = TABLE[name]
    kind: Kind[Any] = Classify(tuple(row.labels.values())) if row.labels else Regress(LOW, HIGH)
    read: Callable[[str], list[Example]]
    if data in HUB:
        names = list(row.splits)
        read = partial(hub.read_split, name)
    else:
        folder = tsv.find_folder(name, data)
        names = [split for split in row.splits if split in _REQUIRED or tsv.has_split(name, split, folder)]
        read = partial(tsv.read_split, name, folder=folder, bad_rows=bad_rows)
    return Task(name, kind, {split: partial(read, split) for split in names}, row.metric, row.symmetric)
