"""A task on documentation: which section of a docstring is a sentence from? With other text of the same packages.

Words of the topic hardly help: a sentence on an array can describe a parameter as well as what a function returns.
"""

import csv
import io
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from lightbert.data.text.docstring_sections import sentences_by_section
from lightbert.data.text.documented_objects import docstrings_by_name
from lightbert.data.text.hashed_splits import hashed_order, hashed_part
from lightbert.data.text.prose import prose
from lightbert.files import make_folder, write_atomic

PACKAGES = ("matplotlib", "networkx", "numpy", "pandas", "scipy", "sklearn")
"""Packages with NumPy-style docstrings."""
SIZES = {"train": 100, "dev": 60, "test": 1300}
"""The maximum number of sentences per section: few to train on, because labels are what users have least
of, and many to test, because a gain can be small."""
TEXT = "text"
_SHARES = {TEXT: 9, "train": 3, "dev": 3, "test": 5}
"""The shares of the documented objects."""


@dataclass(frozen=True)
class SectionTask:
    """Sentences with the section they come from, and documents of other functions and classes."""

    examples: dict[str, list[tuple[str, str]]]
    """Split -> sentences and their sections."""
    documents: list[list[str]]
    """The sentences of each object that has no sentence in the task."""


def read_task(packages: tuple[str, ...] = PACKAGES, sizes: dict[str, int] = SIZES) -> SectionTask:
    """Read the task from the installed packages, the same on every call with the same versions.

    A function, method or class is in the text or in one split, with all of its sentences. Sentences that occur in
    several of them, or in several sections, are not in the task.
    """
    documents: list[list[str]] = []
    places: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for package in packages:
        for name, docstring in docstrings_by_name(package):
            part = hashed_part(f"{package}/{name}", _SHARES)
            sentences = prose(docstring)
            if part == TEXT and sentences:
                documents.append(sentences)
            for sentence in sentences:
                places[sentence].add((part, ""))
            for section, sentence in sentences_by_section(docstring):
                places[sentence].discard((part, ""))
                places[sentence].add((part, section))
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for sentence in sorted(places, key=hashed_order):
        if len(places[sentence]) == 1:
            [(part, section)] = places[sentence]
            found[part, section].append(sentence)
    examples = {
        split: sorted(
            (
                (sentence, section)
                for (part, section), sentences in found.items()
                if part == split and section
                for sentence in sentences[:size]
            ),
            key=lambda example: hashed_order(example[0]),
        )
        for split, size in sizes.items()
    }
    return SectionTask(examples, documents)


def write_task(task: SectionTask, folder: Path) -> dict[str, Path]:
    """Write a table per split and the text, a sentence per line; return their paths."""
    make_folder(folder)
    paths = {split: folder / f"{split}.csv" for split in task.examples}
    for split, rows in task.examples.items():
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([("text", "label"), *rows])
        write_atomic(paths[split], table.getvalue())
    paths[TEXT] = folder / f"{TEXT}.txt"
    write_atomic(paths[TEXT], "\n\n".join("\n".join(sentences) for sentences in task.documents) + "\n")
    return paths
