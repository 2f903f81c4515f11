"""The task of the demo: which package does a sentence document? Its examples are docstrings of installed packages."""

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.commands.report import Table
from lightbert.data.docstrings import DocumentedObject, documented_objects
from lightbert.data.sentences import hashed_order, hashed_part
from lightbert.files import make_folder, write_atomic
from lightbert.tasks.example import Example

if TYPE_CHECKING:
    from lightbert.commands.finetune import FinetuningReport


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

Examples = dict[str, list[Example]]
"""Split -> its sentences, with the packages that they document as labels."""


def read_examples() -> Examples:
    """Return the examples of each split, the same on every call.

    A function, method or class is in one split with all of its sentences. Sentences that name their package, or that
    several packages contain, are left out.
    """
    objects = {package: documented_objects(package) for package in PACKAGES}
    packages_of = defaultdict(set)
    for package, documented in objects.items():
        for item in documented:
            for sentence in item.sentences:
                packages_of[sentence].add(package)
    splits: Examples = {split: [] for split in SPLITS}
    for package, documented in objects.items():
        name = package.rpartition(".")[2]
        for split, sentences in _split(documented).items():
            fitting = [text for text in sentences if packages_of[text] == {package} and name not in text.lower()]
            splits[split] += [Example(text, label=package) for text in fitting[: SPLITS[split]]]
    return {split: sorted(examples, key=lambda row: hashed_order(row.text)) for split, examples in splits.items()}


def write_examples(examples: Examples, folder: Path) -> dict[str, Path]:
    """Write one table per split; return their paths."""
    paths = {}
    for split, rows in examples.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("text", "label"), *((row.text, row.label) for row in rows)])
        paths[split] = folder / f"{split}.csv"
        write_atomic(paths[split], text.getvalue())
    return paths


def _split(objects: list[DocumentedObject]) -> dict[str, list[str]]:
    """Distribute the sentences over the splits by the hash of their object; each sentence appears once."""
    split_of = dict[str, str]()
    for item in sorted(objects, key=lambda item: hashed_order(item.name)):
        for sentence in item.sentences:
            split_of.setdefault(sentence, hashed_part(item.name, _SHARES))
    return {
        split: sorted((sentence for sentence, where in split_of.items() if where == split), key=hashed_order)
        for split in SPLITS
    }


def simple_accuracies(examples: Examples, topic: str = "package") -> dict[str, float]:
    """The test accuracies of a linear model of words, if scikit-learn is installed, and of the most frequent label."""
    from lightbert.tasks.finetune.words import predict_by_words
    from lightbert.tasks.kinds.classify import Classify

    train, test = examples["train"], examples["test"]
    gold, counts = [row.label for row in test], Counter(str(row.label) for row in train)
    predictions = {
        "a linear model of words": [
            row["label"] for row in predict_by_words(Classify(tuple(sorted(counts))), train, test)
        ],
        f"the most frequent {topic}": [max(counts, key=counts.__getitem__)] * len(test),
    }
    return {
        name: sum(one == other for one, other in zip(gold, labels, strict=True)) / len(gold)
        for name, labels in predictions.items()
        if labels
    }


BUNDLED = "convbert-small-en"
# The words of a topic are learned from these examples only, so that the embeddings need the rate of the head.
_POOLED: dict[str, Any] = {"head": {"pool": "mean-max", "init": "random"}, "layer_decay": 1.0}
RECIPES: dict[str, dict[str, Any]] = {
    "bundled": {"method": "both"},
    "tiny": {"epochs": 12, "lr": 3e-3, "threads": 1, "words": False, **_POOLED},
}
"""The settings of both models: the run -> its keys, those of the tiny model chosen on the dev split."""
_SHOWN_LENGTH = 60
_SHARED: dict[str, Any] = {"batch": 16, "length": 64, "checkpoint_every": 100}


@dataclass(frozen=True)
class Comparison:
    """Accuracies on sentences about objects that no classifier was trained on, and the fine-tuned model."""

    model: Path
    sizes: Mapping[str, int]
    """Split -> its number of sentences."""
    labels: int
    accuracy: Mapping[str, float]
    """Classifier -> its accuracy on the test split, the bundled model first."""
    sentence: str
    """A sentence of the test split to try."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"model": str(self.model), "sentences": self.sizes, "labels": self.labels, "accuracy": self.accuracy}

    def __rich__(self) -> Table:
        caption = (
            f"{self.sizes['train']:,} labelled sentences of {self.labels} packages; accuracy on "
            f"{self.sizes['test']:,} sentences about other functions and classes. Sentences that name their package "
            "are left out. The tiny model has read all sentences without labels, in its pre-training."
        )
        values = list(self.accuracy.values())
        rows = [(name, f"{accuracy:.1%}") for name, accuracy in self.accuracy.items()]
        title, best = "Which package does a sentence of a docstring document?", values.index(max(values))
        return Table(("", "accuracy"), rows, title, caption, bold=best)


def compare(out: Path, tiny: Path, device: str = "auto") -> "Comparison | FinetuningReport":
    """Train a classifier on the vectors of the bundled model and words, fine-tune a tiny model, and compare both.

    Beside them are a linear model of words and the majority. Returns the report of a training that was interrupted.
    """
    from lightbert.commands import evaluate, jobs

    examples = read_examples()
    make_folder(out)
    files = write_examples(examples, out)
    accuracy = {}
    names: Sequence[tuple[str, str, str]] = (
        ("bundled", f"{BUNDLED}, its vectors and words", BUNDLED),
        ("tiny", "the tiny model above, fine-tuned", str(tiny)),
    )
    for run, name, model in names:
        data = {"train": str(files["train"]), "dev": str(files["dev"])}
        keys = {**_SHARED, **RECIPES[run], "device": device}
        trained = jobs.finetune("classify", model=model, data=data, out=str(out / run), **keys)
        if not trained.finished:
            return trained
        report = evaluate.run(evaluate.Config(str(out / run / "final"), data=str(files["test"]), device=device))
        accuracy[name] = report.to_json()["metrics"]["accuracy"]
    return Comparison(
        model=out / "bundled" / "final",
        sizes={split: len(rows) for split, rows in examples.items()},
        labels=len({row.label for row in examples["train"]}),
        accuracy={**accuracy, **simple_accuracies(examples)},
        sentence=min((row.text for row in examples["test"]), key=lambda text: abs(len(text) - _SHOWN_LENGTH)),
    )
