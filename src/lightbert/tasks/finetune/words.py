"""Words alone: a linear model of TF-IDF n-grams, to which a fine-tuned model is compared on the same held-out data."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from lightbert.tasks.example import Example
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.kind import Kind, Prediction
from lightbert.tasks.kinds.regress import Regress

MAX_ROWS, _MAX_CHARACTERS = 20_000, 2_000
"""The linear model reads at most this many training texts, and characters per text."""


def predict_by_words(kind: Kind[Any], train: Sequence[Example], examples: Sequence[Example]) -> list[Prediction]:
    """Predict texts or pairs of texts by a linear model of their words; [] for other kinds, or without scikit-learn."""
    if not isinstance(kind, Classify | Labels | Regress):
        return []
    try:
        import sklearn  # noqa: F401
    except ImportError:
        print("words are not compared: pip install 'lightbert[metrics]', or set words=false", file=sys.stderr)
        return []
    if len(train) > MAX_ROWS:
        train = [train[index] for index in np.random.default_rng(0).choice(len(train), MAX_ROWS, replace=False)]
    features, other = _features(train, examples)
    if isinstance(kind, Regress):
        from sklearn.linear_model import Ridge

        numbers = Ridge(alpha=1.0).fit(features, [float(str(example.label)) for example in train]).predict(other)
        return [{"score": score} for score in numbers.clip(kind.low, kind.high).tolist()]
    if isinstance(kind, Classify):
        from sklearn.svm import LinearSVC

        if len({example.label for example in train}) == 1:
            return [{"label": str(train[0].label)}] * len(examples)
        return [{"label": str(label)} for label in LinearSVC().fit(features, [e.label for e in train]).predict(other)]
    return _predict_labels(kind, features, train, other)


def _predict_labels(kind: Labels, features: Any, train: Sequence[Example], other: Any) -> list[Prediction]:
    from sklearn.linear_model import LogisticRegression

    columns = []
    for label in kind.labels:
        truth = np.array([label in (e.label if isinstance(e.label, tuple) else (e.label,)) for e in train])
        if truth.all() or not truth.any():
            columns.append(np.full(other.shape[0], float(truth.mean())))
        else:
            columns.append(LogisticRegression(C=10, solver="liblinear").fit(features, truth).predict_proba(other)[:, 1])
    rows = np.stack(columns, axis=1).tolist()
    return kind.decide([{"probabilities": dict(zip(kind.labels, row, strict=True))} for row in rows])


def _features(train: Sequence[Example], examples: Sequence[Example]) -> tuple[Any, Any]:
    """The features of the training texts and of the others, fitted on the former."""
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    union = make_union(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\b\w+\b|[^\w\s]"),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=2 if len(train) > 50 else 1),
    )
    first = [example.text[:_MAX_CHARACTERS] for example in train]
    second = [example.text_b[:_MAX_CHARACTERS] for example in train if example.text_b is not None]
    union.fit([*first, *second])

    def transform(rows: Sequence[Example]) -> Any:
        a = union.transform([example.text[:_MAX_CHARACTERS] for example in rows])
        if not second:
            return a
        b = union.transform([(example.text_b or "")[:_MAX_CHARACTERS] for example in rows])
        # What both texts share, what only one has, and how similar they are.
        similar = sparse.csr_matrix(a.multiply(b).sum(axis=1))
        return sparse.hstack([a, b, a.multiply(b), abs(a - b), similar], format="csr")

    return transform(train), transform(examples)
