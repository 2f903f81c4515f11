"""Estimators of scikit-learn: texts in, labels, numbers and vectors out; alone, in pipelines and in searches."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from tiny_tasks import write_model

import lightbert
from extras import needs_metrics
from lightbert.errors import InputError

pytestmark = needs_metrics

TEXTS = ["a good film", "the film was good", "good , a film", "a bad film", "the film was bad", "bad , a film"] * 8
LABELS = ["yes"] * 3 + ["no"] * 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("start") / "model"))


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 7]])
def test_a_classifier_is_fitted_cloned_pickled_and_saved(labels, model, tmp_path: Path):
    from sklearn.base import clone

    from lightbert.sklearn import TextClassifier

    y = np.array([labels[label == "yes"] for label in LABELS * 8])
    estimator = clone(TextClassifier(model, method="words", settings={"length": 12}))
    assert estimator.get_params()["settings"] == {"length": 12}
    assert estimator.fit(np.array(TEXTS), y).score(TEXTS, y) == 1
    assert estimator.classes_.tolist() == labels
    probabilities = estimator.predict_proba(TEXTS[:4])
    assert probabilities.sum(1) == pytest.approx(1)
    assert estimator.predict(TEXTS[:4]).tolist() == [labels[1]] * 3 + [labels[0]]
    copy = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_allclose(copy.predict_proba(TEXTS[:4]), probabilities, atol=1e-6)
    estimator.save(tmp_path / "saved")
    assert lightbert.load(tmp_path / "saved").predict("a good film")["label"] == str(labels[1])


def test_a_regressor_reads_pairs_of_a_data_frame(model):
    from lightbert.sklearn import TextRegressor

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"first": TEXTS, "second": ["a film"] * len(TEXTS)})
    settings = {"steps": 2, "batch": 4, "length": 16}
    estimator = TextRegressor(model, method="finetune", settings=settings).fit(frame, [1.5, 1.25, 1, 0, -1, 0.5] * 8)
    assert estimator.predict(frame[:5]).shape == (5,)
    with pytest.raises(InputError, match="X must have 2 columns of texts as in fit, got 1"):
        estimator.predict(TEXTS)


def test_vectors_are_features_in_pipelines_and_searches(model):
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    from lightbert.sklearn import TextClassifier, TextVectors

    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS})
    y = LABELS * 8
    columns = make_column_transformer((TextVectors(model), "text")).set_output(transform="pandas")
    assert columns.fit_transform(frame).columns[0] == "textvectors__vector0"
    pipeline = make_pipeline(TextVectors(model), LogisticRegression(C=100))
    search = GridSearchCV(pipeline, {"textvectors__pool": ["mean", "max"]}, cv=2).fit(TEXTS, y)
    assert search.best_score_ > 0.5
    search = GridSearchCV(TextClassifier(model, settings={"length": 12}), {"method": ["words"]}, cv=2).fit(TEXTS, y)
    assert search.best_score_ == 1


def test_wrong_inputs_are_named(model):
    from lightbert.sklearn import TextClassifier

    estimator = TextClassifier(model)
    for texts, y, sentence in [
        ("a text", ["a"], "X must be a list of texts, got one text"),
        (["a", None], ["a", "b"], "X must consist of texts, got None"),
        (["a", "b"], ["a"], "y must have one label per text, 2 in all"),
    ]:
        with pytest.raises(InputError, match=sentence):
            estimator.fit(texts, y)
