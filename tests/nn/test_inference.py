"""Inference modules: heads and text vectors."""

from collections.abc import Callable

import pytest
import torch
from encoders import WIDTH, ids, make
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn import heads
from lightbert.nn.encoder import Encoder
from lightbert.nn.heads import answer_positions
from lightbert.nn.inference import POOLS, Inference, TextVector
from lightbert.nn.record import Record
from randomised import randomised

ROWS, TOKENS, LABELS, VOCAB = 3, 9, 4, 30
MASK = torch.arange(TOKENS) < torch.tensor([[9], [5], [7]])
SEGMENTS = ((torch.arange(TOKENS) >= 3) & MASK).long()

HEADS: dict[str, Callable[[], nn.Module]] = {
    "classify": lambda: heads.Classification(WIDTH, LABELS),
    "mean": lambda: heads.Classification(WIDTH, LABELS, pool="mean"),
    "mean-max": lambda: heads.Classification(WIDTH, LABELS, pool="mean-max", hidden="tanh"),
    "max": lambda: heads.Regression(WIDTH, pool="max"),
    "regress": lambda: heads.Regression(WIDTH),
    "nsp": lambda: heads.NextSentence(WIDTH),
    "pooler": lambda: heads.Pooler(WIDTH),
    "tokens": lambda: heads.TokenClassification(WIDTH, LABELS),
    "rtd": lambda: heads.ReplacedToken(WIDTH),
    "mlm": lambda: heads.MaskedLanguage(WIDTH, VOCAB, 8),
    "span": lambda: heads.Span(WIDTH),
    "beam": lambda: heads.BeamSpan(WIDTH, inner=8, beam=2),
}
SHAPES = {
    "classify": {"logits": (ROWS, LABELS)},
    "mean": {"logits": (ROWS, LABELS)},
    "mean-max": {"logits": (ROWS, LABELS)},
    "max": {"logits": (ROWS,)},
    "regress": {"logits": (ROWS,)},
    "nsp": {"logits": (ROWS, 2)},
    "pooler": {"logits": (ROWS, WIDTH)},
    "tokens": {"logits": (ROWS, TOKENS, LABELS)},
    "rtd": {"logits": (ROWS, TOKENS)},
    "mlm": {"logits": (ROWS, TOKENS, VOCAB)},
    "span": {"start": (ROWS, TOKENS), "end": (ROWS, TOKENS)},
    "beam": {"start": (ROWS, 4), "end": (ROWS, 4), "score": (ROWS, 4), "impossible": (ROWS,)},
}


def encoder_with(kind: str) -> Encoder:
    encoder = make()
    encoder.heads[kind] = randomised(HEADS[kind]())
    return encoder


def shapes(outputs) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in outputs._asdict().items()}


@pytest.mark.parametrize("kind", HEADS)
def test_outputs_have_the_names_and_shapes_that_are_documented(kind):
    inference = Inference(encoder_with(kind), kind)
    assert shapes(inference(ids(ROWS, TOKENS), MASK, SEGMENTS)) == SHAPES[kind]
    assert (inference.head, inference.device, inference.reads_padding) == (kind, torch.device("cpu"), False)


@pytest.mark.parametrize("kind", ["classify", "regress", "tokens", "rtd", "span"])
def test_a_head_reads_the_states_of_the_encoder(kind):
    encoder, tokens = encoder_with(kind), ids(ROWS, TOKENS)
    expected = encoder.heads[kind](encoder(tokens, MASK, SEGMENTS))
    outputs = Inference(encoder, kind)(tokens, MASK, SEGMENTS)
    torch.testing.assert_close(tuple(outputs), (expected,) if isinstance(expected, Tensor) else tuple(expected))


def test_the_masked_language_head_reads_the_word_table():
    encoder, tokens = encoder_with("mlm"), ids(ROWS, TOKENS)
    expected = encoder.heads["mlm"](encoder(tokens), encoder.table)
    torch.testing.assert_close(Inference(encoder, "mlm")(tokens).logits, expected)


def test_a_batch_without_padding_needs_no_mask():
    inference, tokens = Inference(encoder_with("classify"), "classify"), ids(ROWS, TOKENS)
    torch.testing.assert_close(inference(tokens, torch.ones_like(MASK)).logits, inference(tokens).logits)


def test_the_beam_searches_in_the_second_segment_and_at_the_beginning():
    start, end, score, _ = Inference(encoder_with("beam"), "beam")(ids(ROWS, TOKENS), MASK, SEGMENTS)
    allowed = answer_positions(SEGMENTS, MASK)
    found = score > -1e30
    assert allowed.gather(1, start)[found].all()
    assert allowed.gather(1, end)[found].all()


def test_the_beam_of_a_text_without_segments_finds_cls_only():
    start, end, score, _ = Inference(encoder_with("beam"), "beam")(ids(ROWS, TOKENS))
    found = score > -1e30
    assert found.any()
    assert not start[found].any()
    assert not end[found].any()


def test_answers_are_allowed_in_the_second_segment_and_at_cls():
    places = answer_positions(SEGMENTS, MASK)
    assert places[:, 0].all()
    assert not places[:, 1:3].any()
    assert torch.equal(places[:, 3:], MASK[:, 3:])
    without = answer_positions(torch.zeros_like(SEGMENTS), None)
    assert without[:, 0].all()
    assert not without[:, 1:].any()


def test_a_record_collects_states_and_maps_of_the_encoder():
    record = Record()
    Inference(encoder_with("classify"), "classify")(ids(2, 5), record=record)
    assert len(record.states) == len(record.attention) + 1 > 1


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_exports(kind):
    inference = Inference(encoder_with(kind), kind)
    tokens = ids(ROWS, TOKENS)
    exported = torch.export.export(inference, (tokens, MASK, SEGMENTS)).module()
    torch.testing.assert_close(tuple(exported(tokens, MASK, SEGMENTS)), tuple(inference(tokens, MASK, SEGMENTS)))


def test_a_missing_head_and_the_choice_head_are_errors():
    encoder = make()
    with pytest.raises(InputError, match="unknown head 'classify'"):
        Inference(encoder, "classify")
    encoder.heads["choice"] = heads.MultipleChoice(WIDTH)
    with pytest.raises(InputError, match="head 'choice' is not supported"):
        Inference(encoder, "choice")
    with pytest.raises(InputError, match="unknown pool 'median'"):
        TextVector(encoder, "median")


@pytest.mark.parametrize("kind", ["mean", "max", "mean-max"])
def test_a_pooled_head_does_not_depend_on_the_padding(kind):
    inference, tokens = Inference(encoder_with(kind), kind), ids(ROWS, TOKENS)
    together = inference(tokens, MASK, SEGMENTS).logits
    others = inference(tokens.where(MASK, (tokens + 7) % VOCAB), MASK, SEGMENTS).logits
    torch.testing.assert_close(together, others)
    for row, length in enumerate(MASK.sum(1).tolist()):
        alone = inference(tokens[row : row + 1, :length], None, SEGMENTS[row : row + 1, :length]).logits
        torch.testing.assert_close(together[row], alone[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["mean", "max", "mean-max"])
def test_a_row_without_tokens_has_finite_outputs(kind):
    logits = Inference(encoder_with(kind), kind)(ids(ROWS, TOKENS), MASK & torch.tensor([[1], [0], [1]]).bool()).logits
    assert logits.isfinite().all()


@pytest.mark.parametrize("pool", POOLS)
def test_a_vector_does_not_depend_on_the_padding(pool):
    inference, tokens = TextVector(make(), pool), ids(ROWS, TOKENS)
    (together,) = inference(tokens, MASK)
    assert together.shape == (ROWS, WIDTH)
    for row, length in enumerate(MASK.sum(1).tolist()):
        (alone,) = inference(tokens[row : row + 1, :length])
        torch.testing.assert_close(together[row], alone[0], rtol=1e-5, atol=1e-6)


def test_pools_are_the_mean_the_maximum_and_the_first_state():
    encoder, tokens = make(), ids(1, 6)
    states = encoder(tokens)[0]
    expected = {"mean": states.mean(0), "max": states.max(0).values, "cls": states[0]}
    for pool in POOLS:
        torch.testing.assert_close(TextVector(encoder, pool)(tokens).vectors[0], expected[pool])


def test_vectors_are_float32_for_every_weight_dtype():
    assert TextVector(make().bfloat16())(ids(1, 4)).vectors.dtype is torch.float32
