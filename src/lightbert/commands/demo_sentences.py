"""The task of the demo: which package does a sentence document? Its examples are docstrings of installed packages."""

import csv
import io
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from lightbert.data.docstrings import DocumentedObject, documented_objects
from lightbert.data.sentences import hashed_order, hashed_part
from lightbert.files import write_atomic

PACKAGES = (
    "asyncio",
    "email",
    "http",
    "importlib",
    "inspect",
    "logging",
    "numpy.linalg",
    "numpy.ma",
    "unittest",
    "xml",
)
"""The labels: packages of every installation with hundreds of sentences each."""
SPLITS = {"train": 30, "dev": 30, "test": 60}
"""The maximum number of sentences per package: few to train on, because labels are what users have least of."""
_SHARES = {"train": 4, "dev": 1, "test": 2}
"""The shares of the documented objects."""


@dataclass(frozen=True)
class Example:
    """A sentence and the package that it documents."""

    text: str
    label: str


def read_examples() -> dict[str, list[Example]]:
    """Return the examples of each split, the same on every call.

    A function, method or class is in one split with all of its sentences. Sentences that name their package, or that
    several packages contain, are left out.
    """
    objects = {package: documented_objects(package) for package in PACKAGES}
    packages_of = defaultdict(set)
    for package, found in objects.items():
        for each in found:
            for sentence in each.sentences:
                packages_of[sentence].add(package)
    splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for package, found in objects.items():
        name = package.rpartition(".")[2]
        for split, sentences in _split(found).items():
            fitting = [each for each in sentences if packages_of[each] == {package} and name not in each.lower()]
            splits[split] += [Example(sentence, package) for sentence in fitting[: SPLITS[split]]]
    return {split: sorted(examples, key=lambda each: hashed_order(each.text)) for split, examples in splits.items()}


def write_examples(examples: dict[str, list[Example]], folder: Path) -> dict[str, Path]:
    """Write one table per split; return their paths."""
    paths = {}
    for split, rows in examples.items():
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerows([("text", "label"), *((each.text, each.label) for each in rows)])
        paths[split] = folder / f"{split}.csv"
        write_atomic(paths[split], text.getvalue())
    return paths


def _split(objects: list[DocumentedObject]) -> dict[str, list[str]]:
    """Distribute the sentences over the splits by the hash of their object; each sentence appears once."""
    split_of = dict[str, str]()
    for each in sorted(objects, key=lambda each: hashed_order(each.name)):
        for sentence in each.sentences:
            split_of.setdefault(sentence, hashed_part(each.name, _SHARES))
    return {
        split: sorted((sentence for sentence, where in split_of.items() if where == split), key=hashed_order)
        for split in SPLITS
    }
