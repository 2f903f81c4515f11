"""The encoder: records, input validation and activation checkpointing."""

import pytest
import torch
from encoders import DEPTH, KERNEL, WIDTH, ids, make
from torch import Tensor

from lightbert.errors import InputError
from lightbert.nn import attention
from lightbert.nn.encoder import Encoder
from lightbert.nn.record import Record


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return make()


def padded(rows: int, tokens: int) -> Tensor:
    return torch.arange(tokens) < torch.randint(1, tokens + 1, (rows, 1))


def test_a_record_holds_states_maps_and_kernels_layer_by_layer(encoder):
    record, tokens, mask = Record(), ids(2, 7), torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    states = encoder(tokens, mask, record=record)
    torch.testing.assert_close(states, encoder(tokens, mask), rtol=1e-5, atol=1e-6)
    assert [tuple(state.shape) for state in record.states] == [(2, 7, WIDTH)] * (DEPTH + 1)
    assert record.states[-1] is states
    assert [tuple(attention.shape) for attention in record.attention] == [(2, 2, 7, 7)] * DEPTH
    assert [tuple(kernels.shape) for kernels in record.kernels] == [(2, 7, 2, KERNEL)] * DEPTH
    for distributions in (*record.attention, *record.kernels):
        torch.testing.assert_close(distributions.sum(-1), torch.ones(distributions.shape[:-1]))


@pytest.mark.parametrize("wanted", ["states", "attention", "kernels"])
def test_lists_set_to_none_are_not_recorded(encoder, wanted):
    record = Record(**{name: None for name in ("states", "attention", "kernels") if name != wanted})
    encoder(ids(2, 7), record=record)
    for name in ("states", "attention", "kernels"):
        collected = getattr(record, name)
        assert collected is None if name != wanted else len(collected) == DEPTH + (name == "states")


def gradients(encoder: Encoder, tokens: Tensor, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    torch.manual_seed(3)
    encoder.zero_grad()
    states = encoder(tokens, mask)
    states.pow(3).sum().backward()
    return states, {name: parameter.grad.clone() for name, parameter in encoder.named_parameters()}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointing_gives_identical_gradients(dropout, packed):
    encoder, tokens = make(dropout).train(), ids(2, 7)
    mask = torch.tensor([[1] * 3 + [2] * 4, [1] * 5 + [0] * 2]) if packed else padded(2, 7)
    states, kept = gradients(encoder, tokens, mask)
    encoder.checkpointing = True
    again, recomputed = gradients(encoder, tokens, mask)
    assert torch.equal(states, again)
    for name, gradient in kept.items():
        assert torch.equal(gradient, recomputed[name]), name


def calls_per_block(encoder: Encoder, *inputs: Tensor, record: Record | None = None) -> list[int]:
    """Return how often each block runs in a forward and backward pass."""
    calls = [0] * DEPTH

    def count(index: int) -> None:
        calls[index] += 1

    hooks = [
        block.register_forward_pre_hook(lambda *_, index=index: count(index))
        for index, block in enumerate(encoder.blocks)
    ]
    encoder(*inputs, record=record).sum().backward()
    for hook in hooks:
        hook.remove()
    return calls


@pytest.mark.parametrize("training", [True, False])
def test_checkpointing_recomputes_blocks_in_every_backward_pass(training):
    encoder = make().train(training)
    assert calls_per_block(encoder, ids(2, 7)) == [1] * DEPTH
    encoder.checkpointing = True
    assert calls_per_block(encoder, ids(2, 7)) == [2] * DEPTH


def test_without_gradients_checkpointing_recomputes_nothing(monkeypatch):
    encoder = make().train()
    encoder.checkpointing = True
    monkeypatch.setattr("lightbert.nn.encoder.checkpoint", None)
    with torch.no_grad():
        encoder(ids(2, 7))


def test_a_checkpointed_block_is_recorded_once_and_its_record_has_gradients():
    plain, encoder, tokens = make().train(), make().train(), ids(2, 7)
    encoder.checkpointing = True
    records = Record(scores=[]), Record(scores=[])
    assert calls_per_block(encoder, tokens, record=records[1]) == [2] * DEPTH
    plain(tokens, record=records[0]).sum().backward()
    for name in ("states", "attention", "kernels", "scores"):
        one, other = (getattr(record, name) for record in records)
        assert len(one) == len(other) == DEPTH + (name == "states")
        for kept, recomputed in zip(one, other, strict=True):
            assert torch.equal(kept, recomputed)
            assert recomputed.requires_grad


@pytest.mark.parametrize("depth", range(DEPTH + 1))
def test_depth_sets_the_number_of_blocks_to_run(encoder, depth):
    tokens, record = ids(2, 7), Record(attention=None, kernels=None)
    whole = encoder(tokens, record=record)
    assert torch.equal(encoder(tokens, depth=depth), record.states[depth])
    assert torch.equal(encoder(tokens), whole)


def test_a_record_keeps_the_selected_layers_and_the_others_take_the_fused_path(encoder, monkeypatch):
    tokens, everything = ids(2, 7), Record(scores=[])
    encoder(tokens, record=everything)
    some = Record(attention=None, kernels=None, scores=[], states_of=(0, 2), maps_of=range(2, 4))
    formed = []
    original = attention.relative_scores
    monkeypatch.setattr(attention, "relative_scores", lambda *given: formed.append(1) or original(*given))
    encoder(tokens, record=some)
    assert len(formed) == 2
    for kept, layers, whole in ((some.states, (0, 2), everything.states), (some.scores, (1, 2), everything.scores)):
        assert len(kept) == 2
        for tensor, layer in zip(kept, layers, strict=True):
            torch.testing.assert_close(tensor, whole[layer], rtol=1e-5, atol=1e-6)


def test_the_table_is_the_word_table(encoder):
    assert encoder.table is encoder.embeddings.word.weight


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((torch.zeros(7, dtype=torch.int64),), r"ids must have the shape \[batch, tokens\], got \[7\]"),
        ((torch.zeros(2, 0, dtype=torch.int64),), "at least one token per row"),
        ((torch.zeros(2, 13, dtype=torch.int64),), "at most 12 tokens, got 13"),
        ((ids(2, 7), torch.ones(2, 6, dtype=torch.bool)), r"mask must have the shape of ids, \[2, 7\], got \[2, 6\]"),
        ((ids(2, 7), torch.ones(7, dtype=torch.bool)), r"mask must have the shape of ids, \[2, 7\], got \[7\]"),
        (
            (ids(2, 7), None, torch.zeros(1, 7, dtype=torch.int64)),
            r"segments must have the shape of ids, \[2, 7\], got \[1, 7\]",
        ),
    ],
    ids=["flat ids", "no tokens", "too long", "short mask", "flat mask", "one row of segments"],
)
def test_the_error_for_invalid_inputs_has_their_shapes(encoder, inputs, message):
    with pytest.raises(InputError, match=message):
        encoder(*inputs)
