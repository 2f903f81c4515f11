"""Features: concatenated rows of tokens."""

import numpy as np

from lightbert.data.features import Features, padded_rows


def test_concatenated_features_have_the_rows_of_their_parts():
    for sizes in ([3], [1, 0, 4], [0, 2], [0]):
        draw = np.random.default_rng(0)
        parts, rows, seconds = [], [], []
        for size in sizes:
            chosen = [draw.integers(1, 99, draw.integers(1, 6)).tolist() for _ in range(size)]
            begins = [int(draw.integers(0, len(row) + 1)) for row in chosen]
            parts.append(Features.of(chosen, begins, cut=size))
            rows += chosen
            seconds += begins
        joined = Features.concatenate(parts)
        assert len(joined) == len(rows)
        assert joined.cut == sum(sizes)
        assert joined.lengths.tolist() == [len(row) for row in rows]
        for number, (row, second) in enumerate(zip(rows, seconds, strict=True)):
            padded = padded_rows(joined, np.array([number]), len(row), 0)
            assert padded.ids.tolist() == [row]
            assert padded.segments[0].sum() == len(row) - second
