"""The outputs of every head for texts in packed rows, compared with each text alone."""

import numpy as np
import pytest
import torch
from encoders import ids, make
from test_inference import HEADS, encoder_with

from lightbert.data.features import Features, PackedRows, pack, packed_rows
from lightbert.errors import InputError
from lightbert.models import build, preset
from lightbert.nn.inference import POOLS, Inference, TextVector, infer_packed
from lightbert.nn.pooling import PackedTexts
from randomised import randomised

WIDTH, LENGTHS = 12, [4, 12, 1, 7, 3, 2, 6, 5]
PER_TOKEN = {"tokens", "rtd", "mlm", "span"}
SPARE = 3
FAMILIES = ("bert-tiny", "convbert-tiny", "composite-tiny", "mobilebert-nano", "ib-bert-nano")


def texts_of(lengths: list[int], vocab: int = 30) -> Features:
    rng = np.random.default_rng(0)
    return Features.of([rng.integers(5, vocab, n).tolist() for n in lengths], [(n + 1) // 2 for n in lengths])


def packed(features: Features, width: int) -> tuple[PackedRows, list[int]]:
    """All texts in rows of one width, one row more than needed and room for more texts; and the order of the texts."""
    packing = pack(features.lengths, width)
    chosen, starts = packing.part(0, packing.rows)
    assert packing.rows < len(features)
    return packed_rows(features, chosen, starts, (packing.rows + 1, width), 0, len(chosen) + SPARE), chosen.tolist()


def tensors(rows: PackedRows) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, PackedTexts]:
    ids, texts, segments, _, starts, lengths = map(torch.from_numpy, rows)
    return ids, texts, segments, PackedTexts(starts, lengths)


def alone(features: Features, text: int) -> tuple[torch.Tensor, None, torch.Tensor]:
    start, stop = features.starts[text : text + 2]
    tokens = torch.from_numpy(features.tokens[start:stop].astype(np.int64))
    return tokens[None], None, (torch.arange(len(tokens)) >= features.seconds[text]).long()[None]


def real_answers(outputs) -> list[tuple[int, int, float]]:
    start, end, score = (each[0].tolist() for each in outputs[:3])
    return sorted(answer for answer in zip(start, end, score, strict=True) if answer[2] > -1e30)


@torch.no_grad()
def check(inference: Inference, width: int = WIDTH, vocab: int = 30) -> None:
    features = texts_of(LENGTHS, vocab)
    rows, order = packed(features, width)
    outputs = inference.packed(*tensors(rows))
    for number, text in enumerate(order):
        expected = inference(*alone(features, text))
        if inference.head in PER_TOKEN:
            place = slice(int(rows.starts[number]), int(rows.starts[number] + rows.lengths[number]))
            found = [each.flatten(0, 1)[place][None] for each in outputs]
        else:
            assert all(len(each) == len(LENGTHS) + SPARE for each in outputs)
            found = [each[number : number + 1] for each in outputs]
        if inference.head == "beam":
            answers = real_answers(found)
            assert [each[:2] for each in answers] == [each[:2] for each in real_answers(expected)]
            assert [each[2] for each in answers] == pytest.approx(
                [each[2] for each in real_answers(expected)], abs=1e-5
            )
            found, expected = found[3:], expected[3:]
        torch.testing.assert_close(tuple(found), tuple(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_gives_a_packed_text_the_outputs_of_the_text_alone(kind):
    check(Inference(encoder_with(kind), kind))


@pytest.mark.parametrize("kind", ["classify", "tokens", "span"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_a_packed_text_the_outputs_of_the_text_alone(family, kind):
    heads = {kind: {"labels": 3} if kind != "span" else {}}
    model = randomised(build(preset(family), heads=heads, seed=0))
    check(Inference(model, kind), width=20, vocab=len(model.table))


@pytest.mark.parametrize("pool", POOLS)
@torch.no_grad()
def test_the_vector_of_a_packed_text_is_that_of_the_text_alone(pool):
    inference, features = TextVector(make(), pool), texts_of(LENGTHS)
    rows, order = packed(features, WIDTH)
    (vectors,) = inference.packed(*tensors(rows))
    for number, text in enumerate(order):
        torch.testing.assert_close(vectors[number], inference(*alone(features, text)).vectors[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["classify", "mean-max", "beam"])
def test_the_shapes_of_a_batch_do_not_depend_on_its_texts(kind):
    inference = Inference(encoder_with(kind), kind)
    program = torch.export.export(_Positional(inference), _inputs([3, 4]), strict=False).module()
    for lengths in ([3, 4], [12, 2, 2], [1]):
        torch.testing.assert_close(tuple(program(*_inputs(lengths))), tuple(_Positional(inference)(*_inputs(lengths))))


class _Positional(torch.nn.Module):
    def __init__(self, inference: Inference) -> None:
        super().__init__()
        self.inference = inference

    def forward(self, ids, texts, segments, starts, lengths):
        return self.inference.packed(ids, texts, segments, PackedTexts(starts, lengths))


def _inputs(lengths: list[int]) -> tuple[torch.Tensor, ...]:
    features = texts_of(lengths)
    rows = packed_rows(features, *pack(features.lengths, WIDTH).part(0, 2), (2, WIDTH), 0, capacity=5)
    ids, texts, segments, _, starts, sizes = map(torch.from_numpy, rows)
    return ids, texts, segments, starts, sizes


@pytest.mark.parametrize("kind", ["classify", "mean-max", "beam"])
def test_texts_that_a_batch_does_not_have_send_no_gradient(kind):
    """With a loss on real texts only, the gradients are those of a batch without room for more."""
    encoder, features = encoder_with(kind), texts_of(LENGTHS)
    gradients = []
    for spare in (0, SPARE):
        rows, _ = packed(features, WIDTH)
        ids, texts, segments, places = tensors(rows)
        count = len(LENGTHS) + spare
        outputs = infer_packed(encoder, kind, ids, texts, segments, PackedTexts(*(each[:count] for each in places)))
        encoder.zero_grad()
        outputs[-1][: len(LENGTHS)].square().sum().backward()
        gradients.append([p.grad.clone() for p in encoder.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_unpacking_gives_each_text_a_row_of_its_own():
    places = PackedTexts(torch.tensor([0, 2, 5, 8]), torch.tensor([2, 1, 3, 0]))
    rows = places.unpack(torch.arange(1, 9).view(2, 4))
    assert rows.tolist() == [[1, 2, 0, 0], [3, 0, 0, 0], [6, 7, 8, 0], [0, 0, 0, 0]]
    assert torch.equal(places.real(4), rows > 0)


def test_models_with_released_padding_do_not_support_packed_rows():
    encoder = encoder_with("classify")
    encoder.released_padding = True
    rows, _ = packed(texts_of(LENGTHS), WIDTH)
    with pytest.raises(InputError, match="packed texts require 'masked'"):
        Inference(encoder, "classify").packed(*tensors(rows))


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_texts_are_pooled_in_any_order_of_their_places(pool):
    states = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    texts = torch.tensor([[3, 3, 1, 0, 0], [2, 2, 2, 4, 0]])
    places = PackedTexts(torch.tensor([2, 5, 0, 8, 10]), torch.tensor([1, 3, 2, 1, 0]))
    rows = [states[0, 2:3], states[1, :3], states[0, :2], states[1, 3:4]]
    expected = torch.stack([row.mean(0) if pool == "mean" else row.amax(0) for row in rows])
    torch.testing.assert_close(places.pool(states, pool, texts)[:4], expected)
    assert torch.autograd.gradcheck(lambda x: places.pool(x, pool, texts)[:4], states)


@pytest.mark.parametrize("kind", ["classify", "mean", "max"])
def test_padding_rows_stay_finite(kind):
    inference = Inference(encoder_with(kind), kind)
    empty = PackedTexts(torch.full((2,), 2 * WIDTH), torch.zeros(2, dtype=torch.int64))
    outputs = inference.packed(ids(2, WIDTH), torch.zeros(2, WIDTH, dtype=torch.int32), ids(2, WIDTH) * 0, empty)
    assert outputs.logits.isfinite().all()
