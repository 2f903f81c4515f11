"""The task of the demo: which package does a sentence document? Its examples are docstrings of installed packages."""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lightbert.commands.report import Table
from lightbert.data.docstrings import DocumentedObject, documented_objects
from lightbert.data.sentences import hashed_order, hashed_part
from lightbert.files import write_atomic

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


SMOOTHING = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""The values of Lidstone smoothing to choose from."""

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class NaiveBayes:
    """A trained classifier: the log-probability of every word of the vocabulary under every label."""

    labels: tuple[str, ...]
    vocabulary: dict[str, int]
    prior: NDArray[np.float64]
    """[labels]."""
    likelihood: NDArray[np.float64]
    """[labels, words]."""
    pairs: bool

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the most probable label of each text; words that the training texts don't contain are ignored."""
        return [self.labels[self._scores(text).argmax()] for text in texts]

    def _scores(self, text: str) -> NDArray[np.float64]:
        known = [self.vocabulary[term] for term in _terms(text, self.pairs) if term in self.vocabulary]
        scores: NDArray[np.float64] = self.prior + self.likelihood[:, known].sum(axis=1)
        return scores


def train_naive_bayes(
    texts: Sequence[str], labels: Sequence[str], *, smoothing: float = 1.0, pairs: bool = False
) -> NaiveBayes:
    """Count the words of each label; `pairs` also counts pairs of consecutive words."""
    names = tuple(sorted(set(labels)))
    vocabulary: dict[str, int] = {}
    documents = [[vocabulary.setdefault(term, len(vocabulary)) for term in _terms(text, pairs)] for text in texts]
    counts = np.full((len(names), len(vocabulary)), smoothing)
    for terms, label in zip(documents, labels, strict=True):
        np.add.at(counts[names.index(label)], terms, 1.0)
    prior = np.array([list(labels).count(name) for name in names], dtype=np.float64)
    likelihood = np.log(counts / counts.sum(axis=1, keepdims=True))
    return NaiveBayes(names, vocabulary, np.log(prior / prior.sum()), likelihood, pairs)


def tune_naive_bayes(
    train_texts: Sequence[str], train_labels: Sequence[str], dev_texts: Sequence[str], dev_labels: Sequence[str]
) -> NaiveBayes:
    """Train with every smoothing, with and without pairs, and return the classifier with the best dev accuracy."""
    candidates = [
        train_naive_bayes(train_texts, train_labels, smoothing=smoothing, pairs=pairs)
        for pairs in (False, True)
        for smoothing in SMOOTHING
    ]
    return max(candidates, key=lambda each: equal_fraction(each.predict(dev_texts), dev_labels))


def equal_fraction(predictions: Sequence[str], labels: Sequence[str]) -> float:
    """The share of equal labels."""
    return float(np.mean([one == other for one, other in zip(predictions, labels, strict=True)]))


def _terms(text: str, pairs: bool) -> list[str]:
    words = _WORD.findall(text.lower())
    return [*words, *(f"{one} {other}" for one, other in pairwise(words))] if pairs else words


BUNDLED = "convbert-small-en"
RECIPES: dict[str, dict[str, Any]] = {
    "tiny": {"epochs": 12, "lr": 3e-3, "threads": 1},
    # The upper layers know less about topics (lab/LOG.md).
    "bundled": {"epochs": 16, "lr": 2e-3, "change": {"depth": 1}},
}
"""The settings of both fine-tunings: the run -> its keys, chosen on the dev split. The bundled model takes less than
a minute on two CPU cores."""
_SHOWN_LENGTH = 60
_SHARED: dict[str, Any] = {"batch": 16, "length": 64, "checkpoint_every": 100, "words": False}
# The words of a topic are learned from these examples only, so that the embeddings need the rate of the head.
_POOLED: dict[str, Any] = {"head": {"pool": "mean-max", "init": "random"}, "layer_decay": 1.0}


@dataclass(frozen=True)
class Comparison:
    """Accuracies on sentences about objects that no classifier was trained on, and the fine-tuned model."""

    model: Path
    sizes: dict[str, int]
    """Split -> its number of sentences."""
    labels: int
    accuracy: dict[str, float]
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
    """Fine-tune a layer of the bundled model and a tiny model, and compare them with a bag of words and the majority.

    Returns the report of a fine-tuning that was interrupted.
    """
    from lightbert.commands import evaluate, jobs
    from lightbert.files import make_folder

    examples = read_examples()
    make_folder(out)
    files = write_examples(examples, out)
    accuracy = {}
    first_layer = f"{BUNDLED}, its first layer"
    for run, name, model in (("tiny", "the tiny model above", str(tiny)), ("bundled", first_layer, BUNDLED)):
        data = {"train": str(files["train"]), "dev": str(files["dev"])}
        keys = {**_SHARED, **_POOLED, **RECIPES[run], "device": device}
        trained = jobs.finetune("classify", model=model, data=data, out=str(out / run), **keys)
        if not trained.finished:
            return trained
        report = evaluate.run(evaluate.Config(str(out / run / "final"), data=str(files["test"]), device=device))
        accuracy[f"{name}, fine-tuned"] = report.to_json()["metrics"]["accuracy"]
    texts = {split: [each.text for each in rows] for split, rows in examples.items()}
    labels = {split: [each.label for each in rows] for split, rows in examples.items()}
    words = tune_naive_bayes(texts["train"], labels["train"], texts["dev"], labels["dev"])
    accuracy["naive Bayes on words, tuned"] = equal_fraction(words.predict(texts["test"]), labels["test"])
    [(most_frequent, _)] = Counter(labels["train"]).most_common(1)
    accuracy["the most frequent package"] = labels["test"].count(most_frequent) / len(labels["test"])
    return Comparison(
        model=out / "bundled" / "final",
        sizes={split: len(rows) for split, rows in examples.items()},
        labels=len(set(labels["train"])),
        accuracy=dict(sorted(accuracy.items(), key=lambda each: each[0].startswith(BUNDLED), reverse=True)),
        sentence=min(texts["test"], key=lambda text: abs(len(text) - _SHOWN_LENGTH)),
    )
