"""Statistics of heads against maps whose values are known by hand: diagonal, uniform, shifted."""

import math

import pytest
import torch

from lightbert.analysis.heads import concentration, head_statistics
from lightbert.analysis.study import Observation, equal_lengths, observe_rows
from reading_pairs import MIXED, reader

TOKENS = 12
DIAGONAL = torch.eye(TOKENS)
UNIFORM = torch.full((TOKENS, TOKENS), 1 / TOKENS)
NEXT = torch.eye(TOKENS).roll(1, dims=1)
"""Every token attends to the next one, the last one to the first."""
FAR = torch.eye(TOKENS).roll(6, dims=1)


def statistics(*layers):
    """Of one text, from lists of maps per layer."""
    logs = tuple(torch.stack(layer).log() for layer in layers)
    return head_statistics([Observation((), logs, ())])


def near(tokens):
    """The number of cells at a distance of at most 4."""
    return sum(abs(i - j) <= 4 for i in range(tokens) for j in range(tokens))


def test_the_concentration_of_known_maps():
    assert concentration(DIAGONAL).item() == math.inf
    assert concentration(FAR).item() == 0.0
    # All but the last token attend to a neighbour.
    assert concentration(NEXT).item() == pytest.approx(11.0)
    assert concentration(UNIFORM).item() == pytest.approx(near(12) / (144 - near(12)))
    assert near(12) == 12 * 9 - 20


def test_concentration_is_that_of_the_mean_map_per_text_then_the_mean_over_texts():
    short = torch.full((8, 8), 1 / 8)
    texts = [
        Observation((), (torch.stack([UNIFORM, NEXT]).log(), torch.stack([FAR, UNIFORM]).log()), ()),
        Observation((), (torch.stack([short, short]).log(), torch.stack([short, short]).log()), ()),
    ]
    result = head_statistics(texts)
    local = (2 * near(12) / 12 + 11 + 0) / 4
    first, second = local / (12 - local), near(8) / (64 - near(8))
    assert result.concentration == pytest.approx((first + second) / 2)
    assert result.concentrations == pytest.approx((first, second))
    assert result.uniform == pytest.approx((near(12) / (144 - near(12)), second))
    pooled = (local + near(8) / 8) / (12 - local + 8 - near(8) / 8)
    assert result.pooled == pytest.approx(pooled)
    by_layer = (near(12) / 12 + 11) / 2
    assert result.by_layer[0].item() == pytest.approx((by_layer / (12 - by_layer) + second) / 2)
    by_head = (11 + near(8) / 8) / (1 + 8 - near(8) / 8)
    assert result.by_head[0, 1].item() == pytest.approx(by_head)
    assert (result.texts, result.tokens) == (2, 20)


def test_texts_in_which_all_tokens_are_neighbours_have_no_concentration():
    result = head_statistics([Observation((), (torch.full((1, 5, 5), 0.2).log(),), ())])
    assert result.concentrations == ()
    assert math.isnan(result.concentration)
    assert result.local.item() == pytest.approx(1.0)


def test_locality_distance_entropy_and_special_tokens_of_known_maps():
    result = statistics([DIAGONAL, UNIFORM, NEXT, FAR])
    assert result.local[0].tolist() == pytest.approx([1.0, near(12) / 144, 11 / 12, 0.0])
    distances = sum(abs(i - j) for i in range(12) for j in range(12)) / 144
    assert result.distance[0].tolist() == pytest.approx([0.0, distances, (11 + 11) / 12, 6.0])
    assert result.entropy[0].tolist() == pytest.approx([0.0, math.log(12), 0.0, 0.0], abs=1e-6)
    # Each of the two special tokens is attended to once per row or column.
    assert result.special[0].tolist() == pytest.approx([2 / 12] * 4)


def test_the_profile_has_the_share_of_each_offset():
    result = statistics([DIAGONAL, NEXT])
    assert result.profile[0, 0, 8].item() == pytest.approx(1.0)
    assert result.profile[0, 1, 9].item() == pytest.approx(11 / 12)
    assert result.profile[0].sum(dim=-1).tolist() == pytest.approx([1.0, 11 / 12])


def test_overlap_is_one_for_equal_and_zero_for_disjoint_maps():
    result = statistics([DIAGONAL, DIAGONAL], [NEXT, UNIFORM])
    root = math.sqrt(1 / 12)
    expected = [[1, 1, 0, root], [1, 1, 0, root], [0, 0, 1, root], [root, root, root, 1]]
    torch.testing.assert_close(result.overlap.float(), torch.tensor(expected).float())
    torch.testing.assert_close(result.redundancy.float(), torch.tensor([[1.0, 1.0], [root, root]]))
    # A single head has no redundancy.
    assert statistics([UNIFORM], [DIAGONAL]).redundancy.tolist() == [[0.0], [0.0]]


def test_the_statistics_of_a_model_are_those_of_its_maps():
    [observation] = observe_rows(reader(MIXED, 1), [[2, 6, 7, 8, 9, 10, 11, 12, 3]])
    result = head_statistics([observation])
    mean = torch.stack([observation.maps(layer) for layer in (1, 2, 3)]).mean(dim=(0, 1))
    assert result.concentration == pytest.approx(concentration(mean).item(), rel=1e-5)
    assert result.local.shape == (3, 2)


def test_rows_are_batched_by_length_and_read_as_alone():
    rows = [[2, 6, 7, 3], [2, 8, 3], [2, 9, 10, 3], [2, 11, 3]]
    batches = [*equal_lengths(rows)]
    assert batches == [[[2, 8, 3], [2, 11, 3]], [[2, 6, 7, 3], [2, 9, 10, 3]]]
    model = reader(MIXED, 1)
    for batch in batches:
        for ids, observation in zip(batch, observe_rows(model, batch), strict=True):
            [alone] = observe_rows(model, [ids])
            torch.testing.assert_close(observation.logs + observation.kernels, alone.logs + alone.kernels)
    # Long rows are read one by one, and short ones in bounded batches.
    assert [len(batch) for batch in equal_lengths([[1] * 300] * 2)] == [1, 1]
    assert [len(batch) for batch in equal_lengths([[1] * 8] * 20)] == [16, 4]
