"""Metrics against worked examples; constant and empty input; other libraries."""

import numpy as np
import pytest

from extras import needs_metrics
from lightbert.errors import InputError
from lightbert.tasks import metrics

TRUTH = ["yes", "yes", "yes", "no", "no", "no", "no", "no"]
PREDICTED = ["yes", "no", "yes", "yes", "no", "no", "no", "no"]


def test_accuracy_is_the_fraction_of_correct_predictions():
    assert metrics.accuracy(TRUTH, PREDICTED) == pytest.approx(6 / 8)


def test_f1_is_computed_for_the_given_label():
    assert metrics.f1(TRUTH, PREDICTED, "yes") == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert metrics.f1(TRUTH, PREDICTED, "no") == pytest.approx(2 * 4 / (2 * 4 + 1 + 1))


@pytest.mark.parametrize("truth", [TRUTH, ["no"] * 8])
def test_f1_of_a_label_that_is_never_predicted_is_zero(truth):
    assert metrics.f1(truth, ["no"] * 8, "yes") == 0


def test_macro_f1_is_the_mean_over_the_labels():
    both = (metrics.f1(TRUTH, PREDICTED, "yes") + metrics.f1(TRUTH, PREDICTED, "no")) / 2
    assert metrics.macro_f1(TRUTH, PREDICTED) == pytest.approx(both)


def test_macro_f1_includes_labels_that_are_only_predicted():
    assert metrics.macro_f1(["a", "b"], ["a", "c"]) == pytest.approx(1 / 3)


def test_matthews_matches_the_two_by_two_formula():
    tp, fp, fn, tn = 2, 1, 1, 4
    by_hand = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert metrics.matthews(TRUTH, PREDICTED) == pytest.approx(by_hand)


def test_matthews_of_a_constant_is_zero():
    for truth, said in [(TRUTH, ["no"] * 8), (["no"] * 8, PREDICTED), (["no"] * 8, ["no"] * 8)]:
        assert metrics.matthews(truth, said) == 0


def test_correlations_match_a_worked_example():
    a, b = [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 10.0]
    assert metrics.pearson(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert metrics.spearman(a, b) == pytest.approx(1)
    assert metrics.spearman(a, [-x for x in b]) == pytest.approx(-1)


def test_ties_share_their_mean_rank():
    assert metrics.spearman([1, 2, 3, 4], [1, 2, 2, 4]) == pytest.approx(
        np.corrcoef([1, 2, 3, 4], [1, 2.5, 2.5, 4])[0, 1]
    )


def test_correlation_of_constant_or_non_finite_values_is_zero():
    for said in [[2.5, 2.5, 2.5], [float("nan")] * 3, [1.0, float("inf"), 2.0]]:
        for correlation in [metrics.pearson, metrics.spearman]:
            assert correlation([1.0, 2.0, 3.0], said) == 0
            assert correlation(said, [1.0, 2.0, 3.0]) == 0


@pytest.mark.parametrize("correlation", [metrics.pearson, metrics.spearman])
def test_the_correlation_of_a_single_number_is_zero(correlation):
    assert correlation([1.0], [2.0]) == 0


@pytest.mark.parametrize("correlation", [metrics.pearson, metrics.spearman])
def test_almost_constant_numbers_raise_no_warning(correlation):
    nearly = [1.0, 1.0 + 1e-15, 1.0 + 2e-15, 1.0]
    assert -1 <= correlation([1.0, 2.0, 3.0, 1.0], nearly) <= 1


def test_squared_error_is_the_mean():
    assert metrics.squared_error([1, 2], [2, 4]) == pytest.approx(2.5)


def test_the_confusion_matrix_has_true_labels_in_rows():
    assert metrics.confusion(TRUTH, PREDICTED, ["no", "yes", "maybe"]) == [[4, 1, 0], [1, 2, 0], [0, 0, 0]]


def test_a_wrong_number_of_predictions_is_an_error():
    with pytest.raises(InputError, match="one prediction per example, got 2 for 1 examples"):
        metrics.accuracy(["a"], ["a", "b"])


def test_metrics_without_examples_are_an_error():
    with pytest.raises(InputError, match="require at least one labelled example"):
        metrics.matthews([], [])


@needs_metrics
def test_metrics_equal_those_of_scikit_learn_and_scipy():
    for seed in range(5):
        from scipy import stats
        from sklearn import metrics as theirs

        random = np.random.default_rng(seed)
        truth, predicted = random.choice(list("abcd"), (2, 40)).tolist()
        assert metrics.accuracy(truth, predicted) == pytest.approx(theirs.accuracy_score(truth, predicted))
        assert metrics.macro_f1(truth, predicted) == pytest.approx(theirs.f1_score(truth, predicted, average="macro"))
        assert metrics.matthews(truth, predicted) == pytest.approx(theirs.matthews_corrcoef(truth, predicted))
        assert (
            metrics.confusion(truth, predicted, "abc")
            == theirs.confusion_matrix(truth, predicted, labels=list("abc")).tolist()
        )
        a, b = random.integers(0, 9, (2, 40)).tolist()
        assert metrics.pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic)
        assert metrics.spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
