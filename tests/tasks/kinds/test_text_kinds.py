"""Kinds of task on whole texts: features, predictions and metrics."""

import json
import math

import numpy as np
import pytest
from vocabularies import small_tokenizer

from extras import needs_metrics
from lightbert.errors import InputError
from lightbert.tasks.example import Example, TextEncoder
from lightbert.tasks.kinds import kind_of
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.regress import Regress

KINDS = [Classify(("bad", "good")), Labels(("a", "b", "c")), Regress(0.0, 5.0), Regress(-1.0, 1.0, scaled=False)]
ENCODER = TextEncoder(small_tokenizer(), 8)


def test_a_kind_is_restored_from_its_description():
    for kind in KINDS:
        description = json.loads(json.dumps({**kind.description(), "task": "own", "length": 64}))
        assert kind_of(description) == kind


def test_a_text_is_a_row_and_a_pair_has_two_segments():
    features = KINDS[0].features([Example("good film"), Example("good", "bad film")], ENCODER)
    assert features.lengths.tolist() == [4, 6]
    assert features.seconds.tolist() == [4, 3]
    assert features.targets is None
    assert features.sources.tolist() == [0, 1]


def test_truncated_texts_are_counted():
    texts = [
        Example("good " * 6),
        Example("good " * 7),
        Example("bad " * 3, "film " * 2),
        Example("bad " * 3, "film " * 3),
    ]
    features = KINDS[0].features(texts, ENCODER)
    assert features.lengths.tolist() == [8, 8, 8, 8]
    assert features.cut == 2


def test_targets_of_classification_are_label_indices():
    examples = [Example("film", label="good"), Example("film", label="bad")]
    features = KINDS[0].features(examples, ENCODER)
    assert features.targets.tolist() == [1, 0]
    assert features.targets.dtype == np.int64


def test_targets_require_all_labels():
    for kind, label in zip(KINDS, ("good", ("a",), 2.0, 0.0), strict=True):
        assert kind.features([Example("film", label=label), Example("film")], ENCODER).targets is None
        assert kind.features([], ENCODER).targets is None


def test_targets_of_multilabel_are_binary_vectors():
    features = KINDS[1].features([Example("film", label=("c", "a")), Example("film", label=())], ENCODER)
    assert features.targets.tolist() == [[1, 0, 1], [0, 0, 0]]
    assert features.targets.dtype == np.float32


def test_targets_of_regression_are_scaled_or_unscaled():
    assert KINDS[2].features([Example("film", label=2.5)], ENCODER).targets.tolist() == [0.5]
    assert KINDS[3].features([Example("film", label="0.25")], ENCODER).targets.tolist() == [0.25]


def test_an_unknown_label_is_an_error_with_a_suggestion():
    with pytest.raises(InputError, match="unknown label 'goood'; did you mean 'good'"):
        KINDS[0].features([Example("film", label="goood")], ENCODER)
    with pytest.raises(InputError, match="unknown label 'd'"):
        KINDS[1].features([Example("film", label=("a", "d"))], ENCODER)
    with pytest.raises(InputError, match="labels of a regression must be numbers"):
        KINDS[2].features([Example("film", label="high")], ENCODER)


def predictions_of(kind, *outputs):
    rows = [(np.asarray(output, np.float32),) for output in outputs]
    return kind.predictions([Example("film")] * len(rows), None, rows)


def test_all_classes_have_probabilities():
    (prediction,) = predictions_of(KINDS[0], [0.0, 1.0])
    assert prediction["label"] == "good"
    assert prediction["probability"] == pytest.approx(1 / (1 + math.exp(-1)))
    assert prediction["probabilities"] == pytest.approx({"bad": 1 / (1 + math.e), "good": prediction["probability"]})


def test_labels_with_probability_above_one_half_are_predicted():
    one, none = predictions_of(KINDS[1], [2.0, -1.0, 900.0], [-900.0, 0.0, -1.0])
    assert one["labels"] == ["a", "c"]
    assert one["probabilities"]["a"] == pytest.approx(1 / (1 + math.exp(-2)))
    assert none["labels"] == []


def test_predicted_numbers_are_clipped_to_their_range():
    assert predictions_of(KINDS[2], 0.5, 1.3, -0.1) == [{"score": 2.5}, {"score": 5.0}, {"score": 0.0}]
    assert predictions_of(KINDS[3], 0.5, -3.0) == [{"score": 0.5}, {"score": -1.0}]


def test_predictions_are_json_serializable():
    for kind in KINDS:
        outputs = [0.25] if kind.head == "regress" else [[0.0, 1.0, 2.0][: len(kind.labels)]]
        (prediction,) = predictions_of(kind, *outputs)
        assert json.loads(json.dumps(prediction)) == prediction


@needs_metrics
def test_binary_metrics_are_accuracy_f1_of_the_second_label_and_mcc():
    examples = [Example("", label=label) for label in ("good", "good", "bad", "bad")]
    metrics = KINDS[0].metrics(examples, [{"label": label} for label in ("good", "bad", "bad", "bad")])
    assert metrics == pytest.approx({"accuracy": 0.75, "f1": 2 / 3, "mcc": 1 / math.sqrt(3)})
    assert next(iter(metrics)) == "accuracy"


@needs_metrics
def test_multiclass_metrics_include_macro_f1():
    examples = [Example("", label=label) for label in "abc"]
    metrics = Classify(("a", "b", "c")).metrics(examples, [{"label": label} for label in "abb"])
    assert metrics["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_multilabel_metrics_are_micro_f1_macro_f1_and_exact_set_accuracy():
    examples = [Example("", label=("a", "b")), Example("", label=("c",)), Example("", label=())]
    metrics = KINDS[1].metrics(examples, [{"labels": ["a"]}, {"labels": ["c", "a"]}, {"labels": []}])
    assert metrics == pytest.approx({"micro_f1": 4 / 6, "macro_f1": (2 / 3 + 0 + 1) / 3, "accuracy": 1 / 3})
    assert next(iter(metrics)) == "micro_f1"


@needs_metrics
def test_regression_metrics_are_correlations_and_squared_error():
    examples = [Example("", label=label) for label in (0.0, 1.0, 2.0)]
    metrics = KINDS[2].metrics(examples, [{"score": score} for score in (1.0, 2.0, 3.0)])
    assert metrics == pytest.approx({"pearson": 1.0, "spearman": 1.0, "mse": 1.0})
    assert next(iter(metrics)) == "pearson"


def test_invalid_kinds_are_errors():
    with pytest.raises(InputError, match="at least two distinct names"):
        Classify(("same", "same"))
    with pytest.raises(InputError, match="at least two distinct names"):
        Labels(("one",))
    with pytest.raises(InputError, match="low must be < high"):
        Regress(1.0, 1.0)
    with pytest.raises(InputError, match="unknown kind of task 'clasify'; did you mean 'classify'"):
        kind_of({"kind": "clasify"})
    with pytest.raises(InputError, match="invalid arguments for a task of kind 'classify'"):
        kind_of({"kind": "classify", "classes": 2})


@pytest.mark.parametrize("kind", KINDS[:2], ids=repr)
def test_rows_are_predicted_together_as_alone(kind):
    examples = [Example("film")] * 50
    features = kind.features(examples, ENCODER)
    logits = np.random.default_rng(0).normal(scale=30, size=(50, len(kind.labels))).astype(np.float32)
    together = kind.predictions(examples, features, [(row,) for row in logits])
    alone = [kind.predictions(examples[:1], features, [(row,)])[0] for row in logits]
    assert together == alone
    assert kind.predictions([], features, []) == []


@needs_metrics
def test_the_names_of_the_metrics_are_known_without_a_model():
    for kind, label, prediction in [
        (KINDS[0], "good", {"label": "good"}),
        (Classify(("a", "b", "c")), "a", {"label": "a"}),
        (KINDS[1], ("a",), {"labels": ["a"]}),
        (KINDS[2], 2.0, {"score": 2.0}),
    ]:
        examples = [Example("film", label=label), Example("good", label=label)]
        train = kind.features(examples, ENCODER)
        assert kind.metric_names(train, examples) == tuple(kind.metrics(examples, [prediction] * 2))
