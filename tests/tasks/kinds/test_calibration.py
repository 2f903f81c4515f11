"""Calibration: confidence against accuracy."""

import pytest

from lightbert.errors import InputError
from lightbert.tasks.kinds.kind import calibration


def test_the_calibration_error_weights_bins_by_their_size():
    error, _ = calibration([0.6, 0.6, 0.9, 0.9], [True, False, True, True], bins=2)
    # All lie in (0.5, 1]: confidence 0.75, accuracy 0.75.
    assert error == pytest.approx(0)
    error, _ = calibration([0.6, 0.6, 0.9, 0.9], [True, False, True, True], bins=10)
    assert error == pytest.approx(0.5 * 0.1 + 0.5 * 0.1)


def test_a_bin_includes_its_upper_edge():
    _, bins = calibration([0.5, 1.0, 0.0], [True, True, False], bins=2)
    assert [part["count"] for part in bins] == [2, 1]
    assert bins[1]["confidence"] == 1


def test_each_prediction_is_in_exactly_one_bin():
    _, bins = calibration([0.2, 0.4, 0.99], [True] * 3)
    assert len(bins) == 15
    assert (bins[0]["low"], bins[-1]["high"]) == (0, 1)
    assert sum(part["count"] for part in bins) == 3
    assert [part["accuracy"] for part in bins if not part["count"]] == [0] * 12


def test_invalid_calibration_input_is_an_error():
    for confidences, right, bins in [([], [], 15), ([0.5], [], 15), ([3.2], [True], 15), ([0.5], [True], 0)]:
        with pytest.raises(InputError):
            calibration(confidences, right, bins)
