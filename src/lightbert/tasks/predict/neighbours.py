"""Vectors of length 1 among others: the nearest ones, groups of near-duplicates, clusters. All are exact."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lightbert.tasks.predict.vectors import Floats, normalize_vectors

Places = NDArray[np.int64]

SCORES = 1 << 24
"""The number of dot products that are computed at once."""


def nearest(queries: Floats, vectors: Floats, count: int) -> Iterator[tuple[Places, Floats]]:
    """For each query, the places of the `count` vectors with the largest dot products, best first, and the products.

    Ties are in the order of the vectors.
    """
    kept, block = min(count, len(vectors)), max(1, SCORES // max(1, len(vectors)))
    for start in range(0, len(queries), block):
        for row in queries[start : start + block] @ vectors.T:
            lowest = np.partition(row, len(row) - kept)[len(row) - kept] if kept else 0.0
            candidates = np.flatnonzero(row >= lowest)
            order = candidates[np.argsort(-row[candidates], kind="stable")][:kept]
            yield order, row[order]


def duplicates(vectors: Floats, threshold: float) -> list[list[tuple[int, float]]]:
    """Groups of vectors connected by cosines >= `threshold`, the largest group first.

    Each member is a place, in order, with its highest cosine to another one.
    """
    parents, best = np.arange(len(vectors)), np.full(len(vectors), -1.0)

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = place = parents[parents[place]]
        return place

    block = max(1, SCORES // max(1, len(vectors)))
    for start in range(0, len(vectors), block):
        cosines = vectors[start : start + block] @ vectors[start:].T
        for row, column in np.argwhere(cosines >= threshold).tolist():
            if column > row:
                ends = (start + row, start + column)
                best[list(ends)] = np.maximum(best[list(ends)], cosines[row, column])
                first, second = sorted(map(root, ends))
                parents[second] = first
    groups: dict[int, list[tuple[int, float]]] = {}
    for place in np.flatnonzero(best >= threshold).tolist():
        groups.setdefault(root(place), []).append((place, float(best[place])))
    return sorted(groups.values(), key=lambda group: -len(group))


def cluster(
    vectors: Floats, count: int, *, seed: int = 0, restarts: int = 3, rounds: int = 50
) -> tuple[Places, Floats]:
    """Spherical k-means: the number of each vector's cluster, and the centres [count, D]; the best of `restarts`."""
    results = [_cluster(vectors, count, np.random.default_rng([seed, attempt]), rounds) for attempt in range(restarts)]
    return max(results, key=lambda result: float((vectors * result[1][result[0]]).sum()))


def _cluster(vectors: Floats, count: int, rng: np.random.Generator, rounds: int) -> tuple[Places, Floats]:
    centres = vectors[[int(rng.integers(len(vectors)))]]
    # k-means++: a vector becomes a centre with a probability in proportion to its squared distance from the others.
    distances = 2 - 2 * (vectors @ centres[0])
    while len(centres) < count:
        weights = distances.clip(min=0).astype(np.float64) + 1e-12
        chosen = vectors[[int(rng.choice(len(vectors), p=weights / weights.sum()))]]
        centres = np.concatenate([centres, chosen])
        distances = np.minimum(distances, 2 - 2 * (vectors @ chosen[0]))
    numbers = np.full(len(vectors), -1)
    for _ in range(rounds):
        cosines = vectors @ centres.T
        before, numbers = numbers, cosines.argmax(axis=1)
        if (numbers == before).all():
            break
        sums = np.zeros_like(centres)
        np.add.at(sums, numbers, vectors)
        for empty in np.flatnonzero(np.bincount(numbers, minlength=count) == 0):
            sums[empty] = vectors[cosines.max(axis=1).argmin()]
        centres = normalize_vectors(sums)
    return numbers, centres


def v_measure(truth: Sequence[str], clusters: Sequence[int]) -> float:
    """The harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg 2007)."""
    labels, numbers = (np.unique(np.asarray(values), return_inverse=True)[1] for values in (truth, clusters))
    table = np.zeros((labels.max() + 1, numbers.max() + 1))
    np.add.at(table, (labels, numbers), 1 / len(labels))
    joint, of_labels, of_clusters = (
        float(-(part[part > 0] * np.log(part[part > 0])).sum()) for part in (table, table.sum(1), table.sum(0))
    )
    shared = of_labels + of_clusters - joint
    return 2 * shared / (of_labels + of_clusters) if of_labels + of_clusters else 1.0
