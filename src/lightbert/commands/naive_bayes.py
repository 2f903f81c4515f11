"""A bag-of-words baseline: multinomial naive Bayes on words and word pairs, in numpy."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

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


def train(texts: Sequence[str], labels: Sequence[str], *, smoothing: float = 1.0, pairs: bool = False) -> NaiveBayes:
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


def tune(
    train_texts: Sequence[str], train_labels: Sequence[str], dev_texts: Sequence[str], dev_labels: Sequence[str]
) -> NaiveBayes:
    """Train with every smoothing, with and without pairs, and return the classifier with the best dev accuracy."""
    candidates = [
        train(train_texts, train_labels, smoothing=smoothing, pairs=pairs)
        for pairs in (False, True)
        for smoothing in SMOOTHING
    ]
    return max(candidates, key=lambda each: accuracy(each.predict(dev_texts), dev_labels))


def accuracy(predictions: Sequence[str], labels: Sequence[str]) -> float:
    """The share of equal labels."""
    return float(np.mean([one == other for one, other in zip(predictions, labels, strict=True)]))


def _terms(text: str, pairs: bool) -> list[str]:
    words = _WORD.findall(text.lower())
    return [*words, *(f"{one} {other}" for one, other in pairwise(words))] if pairs else words
