"""Nearest vectors, groups of near-duplicates and clusters."""

import numpy as np
import pytest

from extras import needs_metrics
from lightbert.tasks.predict import neighbours
from lightbert.tasks.predict.neighbours import cluster, duplicates, nearest, v_measure
from lightbert.tasks.predict.vectors import normalize_vectors


def test_the_nearest_vectors_are_those_of_a_full_sort_with_ties_in_order(monkeypatch):
    monkeypatch.setattr(neighbours, "SCORES", 14)
    rng = np.random.default_rng(0)
    queries, vectors = rng.integers(-2, 3, (9, 3)).astype("f4"), rng.integers(-2, 3, (7, 3)).astype("f4")
    products = queries @ vectors.T
    expected = np.argsort(-products, axis=1, kind="stable")
    for count in (4, 99):
        found = list(nearest(queries, vectors, count))
        assert [places.tolist() for places, _ in found] == expected[:, :count].tolist()
        assert [scores.tolist() for _, scores in found] == np.take_along_axis(products, expected, 1)[:, :count].tolist()
    assert [len(places) for places, _ in nearest(queries, vectors[:0], 4)] == [0] * 9


def test_duplicates_are_the_connected_components_above_the_threshold(monkeypatch):
    monkeypatch.setattr(neighbours, "SCORES", 20)
    angles = np.deg2rad([0, 90, 8, 180, 16, 91, 270])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype("f4")
    # 0 and 16 degrees are further apart than 10, but 8 is near both.
    groups = duplicates(vectors, float(np.cos(np.deg2rad(10))))
    assert [[place for place, _ in group] for group in groups] == [[0, 2, 4], [1, 5]]
    assert groups[1][0][1] == pytest.approx(np.cos(np.deg2rad(1)), abs=1e-6)
    assert duplicates(vectors[:0], 0.5) == []


def test_clusters_separate_distant_groups_and_none_is_empty():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 20)
    vectors = normalize_vectors((np.eye(8)[truth] + 0.1 * rng.normal(size=(60, 8))).astype("f4"))
    numbers, centres = cluster(vectors, 3)
    assert v_measure(truth.tolist(), numbers.tolist()) == pytest.approx(1.0)
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 1, rtol=1e-5)
    assert (numbers == cluster(vectors, 3)[0]).all()
    assert sorted(cluster(vectors[:4], 4)[0].tolist()) == [0, 1, 2, 3]


@needs_metrics
def test_the_v_measure_is_that_of_scikit_learn():
    from sklearn.metrics import v_measure_score

    rng = np.random.default_rng(0)
    for _ in range(5):
        labels, clusters = rng.choice(list("abc"), 30).tolist(), rng.integers(0, 4, 30).tolist()
        assert v_measure(labels, clusters) == pytest.approx(v_measure_score(labels, clusters))
    assert v_measure(["a", "a"], [0, 0]) == 1.0
