"""Estimators of scikit-learn: `TextClassifier`, `TextRegressor` and `TextVectors`.

    from lightbert.sklearn import TextClassifier
    model = TextClassifier().fit(texts, labels)
    model.predict_proba(["a text"])

A text is a string; with two columns, a row is a pair of texts. Texts come as a list, an array, a Series or a DataFrame.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lightbert.errors import InputError

Method = Literal["auto", "words", "vectors", "both", "contrast", "finetune"]
_TEXTS = ("text", "text_b")


class _TextEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that is trained like `lightbert finetune classify`.

    model: the model to start from.
    method: what is trained; "auto" compares the others by cross-validation, and keeps the best.
    max_minutes: the time that the comparison and fine-tuning may take.
    settings: other keys of the recipe, such as ``{"lr": 1e-4}``.
    """

    _kind: str

    def __init__(
        self,
        model: str = "convbert-small-en",
        *,
        method: Method = "auto",
        max_minutes: float = 5.0,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.method, self.max_minutes, self.seed = model, method, max_minutes, seed
        self.settings = settings

    def _fit(self, X: Any, labels: Sequence[Any]) -> Self:
        import lightbert
        from lightbert.tasks.predict.text_model import load_text_model

        texts = _rows(X)
        if len(labels) != len(texts):
            raise InputError(f"y must have one label per text, {len(texts)} in all, got {len(labels)}")
        rows = [{**_record(row), "label": label} for row, label in zip(texts, labels, strict=True)]
        columns = len(texts[0])
        data = {"train": rows, "kind": self._kind} | ({"text_b": _TEXTS[1]} if columns == 2 else {})
        keys = {"model": self.model, "method": self.method, "max_minutes": self.max_minutes, "seed": self.seed}
        with tempfile.TemporaryDirectory() as folder:
            report = lightbert.finetune(
                "classify", data=data, out=Path(folder) / "run", **keys, **(self.settings or {})
            )
            assert report.model is not None
            self.model_ = load_text_model(report.model)
        self.result_ = report.runs[0][1]
        self.n_features_in_ = columns
        return self

    def save(self, folder: str | Path) -> None:
        """Write the trained model as a folder that `lightbert.load` and the commands read."""
        import lightbert

        check_is_fitted(self)
        lightbert.save(self.model_, folder)

    def _predictions(self, X: Any) -> list[dict[str, Any]]:
        check_is_fitted(self)
        rows = _rows(X)
        if len(rows[0]) != self.n_features_in_:
            raise InputError(f"X must have {self.n_features_in_} columns of texts as in fit, got {len(rows[0])}")
        predictions: list[dict[str, Any]] = self.model_.predict([_record(row) for row in rows])
        return predictions


class TextClassifier(ClassifierMixin, _TextEstimator):  # type: ignore[misc]
    """A classifier of texts, or of pairs of texts."""

    _kind = "classify"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts and their labels."""
        labels = np.asarray(y).tolist()
        self.classes_ = np.unique(y)
        return self._fit(X, [str(label) for label in labels])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probabilities of the labels, in the order of ``classes_``: [N, C]."""
        names = [str(label) for label in self.classes_.tolist()]
        rows = [prediction["probabilities"] for prediction in self._predictions(X)]
        return np.array([[row[name] for name in names] for row in rows], np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each text."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class TextRegressor(RegressorMixin, _TextEstimator):  # type: ignore[misc]
    """A regression of a number per text, or per pair of texts."""

    _kind = "regress"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts and their numbers."""
        return self._fit(X, np.asarray(y, np.float64).tolist())

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The number of each text."""
        return np.array([prediction["score"] for prediction in self._predictions(X)], np.float64)


class TextVectors(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Vectors of texts by a frozen model, as features of other estimators.

    pool, normalize, size: as of the method `encode` of a model.
    """

    def __init__(
        self,
        model: str = "convbert-small-en",
        *,
        pool: Literal["mean", "max", "cls"] | None = None,
        normalize: bool | None = None,
        size: int = 0,
    ) -> None:
        self.model, self.pool, self.normalize, self.size = model, pool, normalize, size

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Load the model; nothing is learned from the texts."""
        from lightbert.tasks.predict.text_model import load_text_model

        self.model_ = load_text_model(self.model)
        self._width = self._encode(["a"]).shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The vectors [N, D]."""
        check_is_fitted(self)
        return self._encode([row[0] if len(row) == 1 else row for row in _rows(X)])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Name the values vector0, vector1 and so on."""
        check_is_fitted(self)
        return np.array([f"vector{index}" for index in range(self._width)], dtype=object)

    def _encode(self, texts: Sequence[Any]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self.model_.encode(
            texts, pool=self.pool, normalize=self.normalize, size=self.size
        )
        return vectors


def _rows(X: Any) -> list[tuple[str, ...]]:
    """The texts of each row: one, or two."""
    if isinstance(X, str):
        raise InputError("X must be a list of texts, got one text; write [text]")
    array = np.asarray(X if hasattr(X, "__array__") else list(X), dtype=object)
    array = array.reshape(-1, 1) if array.ndim == 1 else array
    if array.ndim != 2 or not 1 <= array.shape[1] <= len(_TEXTS) or not len(array):
        raise InputError(f"X must have texts in one column, or pairs of texts in two, got the shape {array.shape}")
    if bad := [cell for cell in array.flat if not isinstance(cell, str)]:
        raise InputError(f"X must consist of texts, got {bad[0]!r}")
    return [tuple(row) for row in array.tolist()]


def _record(row: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(_TEXTS, row, strict=False))
