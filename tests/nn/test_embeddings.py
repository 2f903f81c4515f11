"""Plain, factorized and trigram embeddings."""

import pytest
import torch
from torch import Tensor, nn

from lightbert.nn.embeddings import Embeddings, TrigramEmbeddings
from lightbert.nn.mask import Mask
from lightbert.nn.norms import NoNorm, layer_norm
from randomised import randomised

VOCAB, NARROW, WIDTH = 20, 6, 8


def make(kind: str, positions: int = 10, dropout: float = 0.0, norm: str = "layer") -> nn.Module:
    part = TrigramEmbeddings if kind == "trigram" else Embeddings
    narrow = WIDTH if kind == "plain" else NARROW
    build_norm = NoNorm if norm == "none" else layer_norm(1e-12)
    return randomised(part(VOCAB, narrow, WIDTH, positions=positions, segments=3, norm=build_norm, dropout=dropout))


def ids(*shape: int) -> Tensor:
    return torch.randint(0, VOCAB, shape)


@pytest.fixture(params=["plain", "factorized", "trigram"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("norm", ["layer", "none"])
def test_embeddings_have_the_width_and_every_parameter_gets_a_gradient(kind, norm):
    part = make(kind, norm=norm)
    out = part(ids(4, 10), torch.randint(0, 3, (4, 10)), Mask(None))
    assert out.shape == (4, 10, WIDTH)
    out.pow(3).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())


def test_only_narrow_tables_are_projected():
    assert make("plain").project is None
    assert make("factorized").project.weight.shape == (WIDTH, NARROW)
    assert make("trigram").project.weight.shape == (WIDTH, 3 * NARROW)


def test_words_segments_and_positions_are_summed_normalized_and_projected():
    part, tokens, segments = make("factorized"), ids(2, 5), torch.randint(0, 3, (2, 5))
    total = part.word.weight[tokens] + part.segment.weight[segments] + part.position.weight[:5]
    torch.testing.assert_close(part(tokens, segments, Mask(None)), part.project(part.norm(total)))


def test_a_trigram_concatenates_the_next_this_and_the_previous_token():
    part, tokens = make("trigram"), ids(1, 3)
    first, middle, last = part.word.weight[tokens[0]]
    nothing = torch.zeros(NARROW)
    trigrams = torch.stack(
        [
            torch.cat([middle, first, nothing]),
            torch.cat([last, middle, first]),
            torch.cat([nothing, last, middle]),
        ]
    )
    total = part.project(trigrams) + part.segment.weight[0] + part.position.weight[:3]
    torch.testing.assert_close(part(tokens, None, Mask(None))[0], part.norm(total))


def test_without_segments_all_tokens_are_in_the_first(kind):
    part, tokens = make(kind), ids(2, 5)
    torch.testing.assert_close(part(tokens, None, Mask(None)), part(tokens, torch.zeros_like(tokens), Mask(None)))


def test_without_positions_there_is_no_table_and_no_limit(kind):
    part = make(kind, positions=0)
    assert part.position is None
    assert part(ids(1, 100), None, Mask(None)).shape == (1, 100, WIDTH)


def test_positions_count_real_tokens_only(kind):
    part, text = make(kind), ids(1, 4)
    padded = torch.cat([ids(1, 3), text, ids(1, 2)], dim=1)
    keep = torch.tensor([[False] * 3 + [True] * 4 + [False] * 2])
    torch.testing.assert_close(part(padded, None, Mask(keep))[:, 3:7], part(text, None, Mask(None)))


def test_positions_restart_with_each_packed_text(kind):
    part, one, other = make(kind), ids(1, 4), ids(1, 3)
    packed = part(torch.cat([one, other], dim=1), None, Mask(torch.tensor([[5] * 4 + [2] * 3])))
    torch.testing.assert_close(packed[:, :4], part(one, None, Mask(None)))
    torch.testing.assert_close(packed[:, 4:], part(other, None, Mask(None)))


def test_with_released_padding_the_last_trigram_reads_it():
    part, text, padding = make("trigram"), ids(1, 4), ids(1, 2)
    released = Mask(torch.tensor([[True] * 4 + [False] * 2]), released=True)
    out = part(torch.cat([text, padding], dim=1), None, released)[:, :4]
    alone = part(text, None, Mask(None))
    torch.testing.assert_close(out[:, :3], alone[:, :3])
    assert (out[:, 3] - alone[:, 3]).abs().amax() > 0.1


def test_dropout_applies_in_training_only(kind):
    part, tokens = make(kind, dropout=0.5), ids(2, 5)
    assert torch.equal(part(tokens, None, Mask(None)), part(tokens, None, Mask(None)))
    part.train()
    assert not torch.equal(part(tokens, None, Mask(None)), part(tokens, None, Mask(None)))
