"""Every head: names, shapes, arithmetic, gradients, export and bf16."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightbert.errors import InputError
from lightbert.nn.heads import (
    Classification,
    MaskedLanguage,
    MultipleChoice,
    NextSentence,
    Pooler,
    Regression,
    ReplacedToken,
    Span,
    TokenClassification,
)
from lightbert.nn.init import initialize

B, T, D, V, NARROW = 3, 5, 8, 11, 4


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    names: set[str]
    shape: tuple[int, ...]
    tied: bool = False

    def head(self) -> nn.Module:
        return drawn(self.make())


def drawn(head: nn.Module) -> nn.Module:
    initialize(head, seed=0)
    return head


def layer(name: str) -> set[str]:
    return {f"{name}.weight", f"{name}.bias"}


CASES = {
    "mlm": Case(lambda: MaskedLanguage(D, V, NARROW), {*layer("transform"), *layer("norm"), "bias"}, (B, T, V), True),
    "mlm split": Case(
        lambda: MaskedLanguage(D, V, NARROW, hidden=7, activation="relu"),
        {*layer("transform"), *layer("norm"), "bias", "extra"},
        (B, T, V),
        True,
    ),
    "rtd": Case(lambda: ReplacedToken(D), layer("dense") | layer("output"), (B, T)),
    "pooler": Case(lambda: Pooler(D), layer("dense"), (B, D)),
    "nsp": Case(lambda: NextSentence(D), layer("dense") | layer("output"), (B, 2)),
    "nsp raw": Case(lambda: NextSentence(D, pooled=False), layer("output"), (B, 2)),
    "classify": Case(lambda: Classification(D, 3), layer("output"), (B, 3)),
    "classify tanh": Case(lambda: Classification(D, 3, hidden="tanh"), layer("dense") | layer("output"), (B, 3)),
    "classify gelu": Case(lambda: Classification(D, 3, hidden="gelu"), layer("dense") | layer("output"), (B, 3)),
    "classify mean": Case(lambda: Classification(D, 3, pool="mean"), layer("output"), (B, 3)),
    "classify mean-max": Case(
        lambda: Classification(D, 3, pool="mean-max", hidden="tanh"), layer("dense") | layer("output"), (B, 3)
    ),
    "regress max": Case(lambda: Regression(D, pool="max"), layer("output"), (B,)),
    "regress": Case(lambda: Regression(D, hidden="tanh"), layer("dense") | layer("output"), (B,)),
    "tokens": Case(lambda: TokenClassification(D, 4), layer("output"), (B, T, 4)),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def inputs(case: Case, batch: int = B, length: int = T) -> tuple[Tensor, ...]:
    states = torch.randn(batch, length, D)
    return (states, torch.randn(V, NARROW)) if case.tied else (states,)


def test_parameters_have_their_public_names(case):
    assert {name for name, _ in case.head().named_parameters()} == case.names


def test_logits_have_the_documented_shape(case):
    assert case.head()(*inputs(case)).shape == case.shape


def test_an_empty_batch_gives_empty_logits(case):
    assert case.head()(*inputs(case, batch=0)).shape == (0, *case.shape[1:])


def test_gradients_reach_every_parameter_and_the_table(case):
    head, (states, *table) = case.head(), inputs(case)
    states.requires_grad_()
    for tensor in table:
        tensor.requires_grad_()
    head(states, *table).square().sum().backward()
    for tensor in (states, *table, *head.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.abs().sum() > 0


def test_bfloat16_is_close_to_float32(case):
    head, arguments = case.head().eval(), inputs(case)
    exact = head(*arguments)
    with torch.autocast("cpu", torch.bfloat16):
        autocast = head(*arguments)
    rounded = head.bfloat16()(*(tensor.bfloat16() for tensor in arguments))
    for logits in (autocast, rounded):
        assert logits.dtype == torch.bfloat16
        assert (logits.float() - exact).norm() < 0.05 * exact.norm()


def test_export_keeps_batch_and_length_dynamic(case):
    head = case.head().eval()
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    dynamic = (sizes, None) if case.tied else (sizes,)
    exported = torch.export.export(head, inputs(case), dynamic_shapes=dynamic).module()
    fresh = inputs(case, batch=2, length=9)
    torch.testing.assert_close(exported(*fresh), head(*fresh))


def test_masked_language_is_norm_of_activation_times_the_table():
    head, states, table = MaskedLanguage(D, V, NARROW), torch.randn(B, D), torch.randn(V, NARROW)
    nn.init.normal_(head.bias)
    features = F.layer_norm(F.gelu(head.transform(states)), (NARROW,), eps=1e-12)
    torch.testing.assert_close(head(states, table), features @ table.T + head.bias)


def test_split_decoder_equals_the_concatenated_table():
    head, states, table = drawn(MaskedLanguage(D, V, NARROW, hidden=7)), torch.randn(B, D), torch.randn(V, NARROW)
    nn.init.normal_(head.norm.weight)
    nn.init.normal_(head.bias)
    features = head.norm(F.gelu(head.transform(states)))
    whole = torch.cat((table, head.extra), dim=1)
    torch.testing.assert_close(head(states, table), features @ whole.T + head.bias)


def test_split_decoder_has_mobileberts_parameters():
    with torch.device("meta"):
        head = MaskedLanguage(512, 30522, 128, hidden=512, activation="relu")
    assert head.extra.numel() == 11_720_448


def test_a_transform_narrower_than_the_embeddings_is_an_error():
    with pytest.raises(InputError, match=r"hidden \(3\) must be >= the width of the word embeddings \(4\)"):
        MaskedLanguage(D, V, NARROW, hidden=3)


def test_the_output_layer_of_the_rtd_head_is_glorot_uniform():
    bound = (6 / (512 + 1)) ** 0.5
    largest = drawn(ReplacedToken(512)).output.weight.abs().max()
    assert 0.9 * bound < largest <= bound


def test_text_heads_depend_on_the_first_state_only():
    states = torch.randn(B, T, D)
    others = torch.cat((states[:, :1], torch.randn(B, T + 2, D)), dim=1)
    for kind in ("pooler", "nsp", "classify", "classify gelu", "regress"):
        head = CASES[kind].head().eval()
        torch.testing.assert_close(head(states), head(others))


def test_pooled_text_heads_read_the_means_and_maxima_of_real_tokens():
    states, mask = torch.randn(B, T, D), torch.arange(T) < torch.tensor([[5], [2], [1]])
    rows = [row[:length] for row, length in zip(states, (5, 2, 1), strict=True)]
    means, maxima = torch.stack([row.mean(0) for row in rows]), torch.stack([row.amax(0) for row in rows])
    for pool, vectors in {"mean": means, "max": maxima, "mean-max": torch.cat((means, maxima), -1)}.items():
        head = Classification(D, 3, pool=pool).eval()
        assert head.output.in_features == vectors.shape[1]
        torch.testing.assert_close(head(states, mask=mask), head.output(vectors))
        torch.testing.assert_close(head(states[:1]), head.output(vectors[:1]))


def test_hidden_layers_are_the_published_ones():
    first = torch.randn(B, D)
    raw = Classification(D, 3).eval()
    torch.testing.assert_close(raw(first[:, None]), raw.output(first))
    for name, function in (("tanh", torch.tanh), ("gelu", F.gelu)):
        head = Classification(D, 3, hidden=name).eval()
        torch.testing.assert_close(head(first[:, None]), head.output(function(head.dense(first))))


@pytest.mark.parametrize(("hidden", "expected"), [(None, 1), ("tanh", 1), ("gelu", 2)])
def test_dropout_is_where_each_release_has_it(hidden, expected):
    head = Classification(D, 3, hidden=hidden, dropout=0.3)
    assert [m.p for m in head.modules() if isinstance(m, nn.Dropout)] == [0.3] * expected
    # With everything dropped, a pooled head depends on its hidden bias, a raw head on the output bias only.
    dropped = Classification(D, 3, hidden=hidden, dropout=1.0)(torch.randn(B, T, D))
    torch.testing.assert_close(dropped, dropped[:1].expand(B, 3))


def test_the_error_for_one_label_suggests_the_regress_head():
    with pytest.raises(InputError, match="labels must be >= 2, got 1; use the regress head"):
        Classification(D, 1)


def test_an_unknown_hidden_layer_is_an_error():
    with pytest.raises(InputError, match="did you mean 'tanh'"):
        Classification(D, 2, hidden="tan")


def test_an_unknown_pool_is_an_error():
    with pytest.raises(InputError, match="unknown pool 'maen-max'; did you mean 'mean-max'"):
        Classification(D, 2, pool="maen-max")


def test_multiple_choice_scores_each_choice_by_its_own_first_state():
    head, states = MultipleChoice(D).eval(), torch.randn(B, 4, T, D)
    expected = F.linear(states[:, :, 0], head.output.weight, head.output.bias).squeeze(-1)
    torch.testing.assert_close(head(states), expected)
    torch.testing.assert_close(head(states.flatten(0, 1), choices=4), expected)
    assert {name for name, _ in MultipleChoice(D, hidden="gelu").named_parameters()} == {
        *layer("dense"),
        *layer("output"),
    }


def test_flat_choices_need_their_number():
    with pytest.raises(InputError, match="choices is required"):
        MultipleChoice(D)(torch.randn(B, T, D))


def test_span_logits_are_the_two_columns_of_one_dense():
    head, states = Span(D), torch.randn(B, T, D)
    both = head.output(states)
    start, end = head(states)
    torch.testing.assert_close(start, both[..., 0])
    torch.testing.assert_close(end, both[..., 1])
    assert {name for name, _ in head.named_parameters()} == layer("output")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_span_head_never_selects_a_disallowed_position(dtype):
    head, states = Span(D).to(dtype), 1e4 * torch.randn(B, T, D).to(dtype)
    allowed = torch.tensor([[True, False, False, True, False]]).expand(B, T)
    for logits in head(states, allowed):
        probabilities = logits.softmax(-1)
        assert (probabilities[~allowed] == 0).all()
        torch.testing.assert_close(probabilities.sum(-1).float(), torch.ones(B))


def test_a_row_without_allowed_positions_is_uniform_not_nan():
    start, end = Span(D)(torch.randn(1, T, D), torch.zeros(1, T, dtype=torch.bool))
    for logits in (start, end):
        torch.testing.assert_close(logits.softmax(-1), torch.full((1, T), 1 / T))


@pytest.mark.parametrize("hidden", [NARROW, 7])
def test_the_decoder_of_the_masked_language_head_is_one_linear_layer(hidden):
    head, states = drawn(MaskedLanguage(D, V, NARROW, hidden=hidden)), torch.randn(B, D)
    table = torch.randn(V, NARROW)
    torch.testing.assert_close(F.linear(head.features(states), *head.decoder(table)), head(states, table))
