"""`papers.mobilebert`, compared with numbers worked out by hand."""

import pytest
import torch
from torch import Tensor, tensor

from lightbert.papers.mobilebert import attention, embed, mobilebert, no_norm, trigrams


def dense(name: str, weight: float, bias: float = 0.0) -> dict[str, Tensor]:
    return {f"{name}.weight": tensor([[weight]]), f"{name}.bias": tensor([bias])}


def norm(name: str, weight: float = 1.0, bias: float = 0.0) -> dict[str, Tensor]:
    return {f"{name}.weight": tensor([weight]), f"{name}.bias": tensor([bias])}


def test_a_trigram_is_the_next_token_then_this_one_then_the_previous_one() -> None:
    out = trigrams(tensor([[[1.0], [2.0], [3.0]]]))
    assert out.tolist() == [[[2.0, 1.0, 0.0], [3.0, 2.0, 1.0], [0.0, 3.0, 2.0]]]


def test_a_trigram_of_one_token_is_padded_with_zeros() -> None:
    assert trigrams(tensor([[[5.0, 6.0]]])).tolist() == [[[0.0, 0.0, 5.0, 6.0, 0.0, 0.0]]]


def test_no_norm_scales_and_shifts_without_normalizing() -> None:
    out = no_norm({"norm.weight": tensor([2.0, 3.0]), "norm.bias": tensor([1.0, 0.0])}, "norm", tensor([[10.0, 100.0]]))
    assert out.tolist() == [[21.0, 300.0]]


EMBEDDINGS = {
    "word.weight": tensor([[7.0], [1.0], [2.0]]),
    "project.weight": tensor([[100.0, 10.0, 1.0]]),
    "project.bias": tensor([0.5]),
    "position.weight": tensor([[1000.0], [2000.0], [3000.0]]),
    "segment.weight": tensor([[0.0], [50000.0]]),
    **norm("norm", 2.0),
}


def test_embeddings_add_position_and_segment_to_projected_trigrams() -> None:
    everything = torch.ones(1, 3, dtype=torch.bool)
    out = embed(EMBEDDINGS, tensor([[1, 2, 0]]), tensor([[0, 0, 1]]), everything, no_norm)
    assert out.flatten().tolist() == [2 * 1210.5, 2 * 2721.5, 2 * 53072.5]


def test_a_trigram_reads_zeros_at_padding() -> None:
    out = embed(EMBEDDINGS, tensor([[1, 2, 0]]), None, tensor([[True, True, False]]), no_norm)
    assert out.flatten()[:2].tolist() == [2 * 1210.5, 2 * 2021.5]


@pytest.mark.parametrize(("mixer_input", "expected"), [("shared", 200.0), ("wide", 200.0), ("narrow", 2000.0)])
def test_the_value_reads_the_wide_stream_unless_the_input_is_narrow(mixer_input: str, expected: float) -> None:
    block = {
        **dense("shared", 1.0),
        **norm("shared_norm"),
        **dense("mixer.query", 0.0),
        **dense("mixer.key", 0.0),
        **dense("mixer.value", 2.0),
    }
    wide, narrow = torch.full((1, 2, 1), 100.0), torch.full((1, 2, 1), 1000.0)
    keep = torch.ones(1, 2, dtype=torch.bool)
    out = attention(block, wide, narrow, keep, 1, mixer_input, no_norm)
    assert out.flatten().tolist() == [expected, expected]


def test_an_unknown_mixer_input_is_an_error() -> None:
    with pytest.raises(ValueError, match="thick"):
        attention({}, torch.ones(1, 1, 1), torch.ones(1, 1, 1), torch.ones(1, 1) > 0, 1, "thick", no_norm)


def test_query_and_key_of_a_shared_input_read_their_own_bottleneck() -> None:
    block = {
        **dense("shared", 1.0, -100.0),
        **norm("shared_norm", 1.0, 1.0),
        **dense("mixer.query", 1.0),
        **dense("mixer.key", 1.0),
        **dense("mixer.value", 1.0),
    }
    wide = tensor([[[100.0], [101.0]]])
    keep = torch.ones(1, 2, dtype=torch.bool)
    out = attention(block, wide, torch.zeros_like(wide), keep, 1, "shared", no_norm)
    # The shared vectors are 1 and 2.
    weight = tensor([[1.0, 2.0], [2.0, 4.0]]).softmax(-1)
    torch.testing.assert_close(out.flatten(), weight @ tensor([100.0, 101.0]))


def test_one_token_through_a_block_matches_both_residual_streams_by_hand() -> None:
    weights = {
        "embeddings.word.weight": tensor([[3.0]]),
        "embeddings.project.weight": tensor([[0.0, 1.0, 0.0]]),
        "embeddings.project.bias": tensor([0.0]),
        "embeddings.position.weight": tensor([[0.0]]),
        "embeddings.segment.weight": tensor([[0.0]]),
        **norm("embeddings.norm"),
        **dense("blocks.0.enter", 2.0, 1.0),
        **norm("blocks.0.enter_norm", 10.0),
        **dense("blocks.0.mixer.query", 1.0),
        **dense("blocks.0.mixer.key", 1.0),
        **dense("blocks.0.mixer.value", 4.0),
        **dense("blocks.0.output", 5.0),
        **norm("blocks.0.norm", 1.0, 0.5),
        **dense("blocks.0.feedforward.0.up", 1.0),
        **dense("blocks.0.feedforward.0.down", 2.0),
        **norm("blocks.0.feedforward.0.norm", 0.1),
        **dense("blocks.0.feedforward.1.up", -1.0),
        **dense("blocks.0.feedforward.1.down", 7.0),
        **norm("blocks.0.feedforward.1.norm", 2.0),
        **dense("blocks.0.leave", 3.0),
        **norm("blocks.0.leave_norm", 1.0, -1.0),
    }
    out = mobilebert(weights, tensor([[0]]), depth=1, n_heads=1, feedforwards=2, mixer_input="wide")
    # Stream 3; narrow (2·3 + 1)·10 = 70; attention 4·3·5 = 60, so 70 + 60 + 0.5 = 130.5; feed-forwards
    # (130.5 + 2·130.5)·0.1 = 39.15 and (39.15 + 0)·2 = 78.3; back to the stream 3 + 3·78.3 − 1 = 236.9.
    torch.testing.assert_close(out, tensor([[[236.9]]]))
