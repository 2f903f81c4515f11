"""ELECTRA's joint span head against its definition, spelled out, and against a case worked by hand."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lightbert.nn.heads import BeamSpan

B, T, D = 2, 6, 4


def head(beam: int = 3) -> BeamSpan:
    built = BeamSpan(D, inner=5, beam=beam)
    for parameter in built.parameters():
        nn.init.normal_(parameter)
    return built


def end_logit(joint: BeamSpan, states: Tensor, row: int, start: int, end: int) -> Tensor:
    pair = torch.cat((states[row, start], states[row, end]))
    return joint.end_output(F.gelu(joint.end_dense(pair)))[0]


def test_parameters_have_their_public_names():
    layers = ("start", "end_dense", "end_output", "answer_dense", "answer_output")
    names = {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    assert {name for name, _ in head().named_parameters()} == names


def test_training_conditions_the_end_on_the_gold_start():
    joint, states, gold = head(), torch.randn(B, T, D), torch.tensor([4, 1])
    logits = joint(states, gold=gold)
    assert logits.end.shape == (B, 1, T)
    assert logits.considered.tolist() == [[4], [1]]
    for row in range(B):
        for end in range(T):
            expected = end_logit(joint, states, row, int(gold[row]), end)
            torch.testing.assert_close(logits.end[row, 0, end], expected)


def test_search_considers_the_most_probable_starts():
    joint, states = head(beam=2), torch.randn(B, T, D)
    logits = joint(states)
    scores = joint.start(states).squeeze(-1)
    torch.testing.assert_close(logits.start, scores)
    assert logits.considered.tolist() == scores.argsort(descending=True)[:, :2].tolist()
    for row, starts in enumerate(logits.considered.tolist()):
        for place, start in enumerate(starts):
            torch.testing.assert_close(logits.end[row, place, 3], end_logit(joint, states, row, start, 3))


def test_the_answerability_logit_uses_cls_and_the_expected_start():
    joint, states = head(), torch.randn(B, T, D)
    probabilities = joint.start(states).squeeze(-1).softmax(-1)
    expected_start = (probabilities[..., None] * states).sum(1)
    pair = torch.cat((states[:, 0], expected_start), dim=-1)
    expected = joint.answer_output(F.gelu(joint.answer_dense(pair))).squeeze(-1)
    torch.testing.assert_close(joint(states).impossible, expected)
    torch.testing.assert_close(joint(states, gold=torch.tensor([0, 1])).impossible, expected)


def test_search_of_a_case_worked_by_hand():
    # Width 1, a start logit equal to the state and an end logit of gelu(h_end − 2·h_start).
    joint = BeamSpan(1, inner=1, beam=2)
    with torch.no_grad():
        for parameter in joint.parameters():
            parameter.zero_()
        joint.start.weight.fill_(1.0)
        joint.end_dense.weight.copy_(torch.tensor([[-2.0, 1.0]]))
        joint.end_output.weight.fill_(1.0)
    states = torch.tensor([0.0, 1.0, 3.0]).reshape(1, 3, 1)
    logits = joint(states)
    # Starts by logit 0, 1, 3: position 2, then position 1.
    assert logits.considered.tolist() == [[2, 1]]
    gelu = [[F.gelu(torch.tensor(x)) for x in row] for row in ([-6.0, -5.0, -3.0], [-2.0, -1.0, 1.0])]
    torch.testing.assert_close(logits.end, torch.tensor(gelu)[None])
    # From 2 the ends are nearly even, best 0 then 1 (gelu dips at −3); from 1 best 2 then 0 (gelu dips at −1).
    found = joint.search(logits)
    assert list(zip(found.start[0].tolist(), found.end[0].tolist(), strict=True)) == [(2, 0), (2, 1), (1, 2), (1, 0)]
    log_start = torch.tensor([0.0, 1.0, 3.0]).log_softmax(0)
    log_end = torch.tensor(gelu).log_softmax(-1)
    expected = torch.stack(
        [
            log_start[2] + log_end[0, 0],
            log_start[2] + log_end[0, 1],
            log_start[1] + log_end[1, 2],
            log_start[1] + log_end[1, 0],
        ]
    )
    torch.testing.assert_close(found.score[0], expected)


@settings(max_examples=25)
@given(length=st.integers(1, 9), beam=st.integers(1, 12), seed=st.integers(0, 99))
def test_a_wide_beam_finds_the_best_span_and_a_narrow_one_never_a_better_one(length, beam, seed):
    torch.manual_seed(seed)
    joint, states = head(beam=beam), torch.randn(B, length, D)
    found = joint.search(joint(states))
    assert found.score.shape == (B, min(beam, length) ** 2)
    assert (found.score.diff() <= 0).all()
    start = joint.start(states).squeeze(-1).log_softmax(-1)
    every = torch.arange(length).expand(B, length)
    end = torch.stack([joint(states, gold=every[:, i]).end[:, 0] for i in range(length)], dim=1).log_softmax(-1)
    best = (start[:, :, None] + end).flatten(1).amax(-1)
    assert (found.score[:, 0] <= best + 1e-5).all()
    if beam >= length:
        torch.testing.assert_close(found.score[:, 0], best)


def test_disallowed_positions_have_probability_zero():
    joint, states = head(beam=2), 1e3 * torch.randn(B, T, D)
    allowed = torch.tensor([[True, False, False, True, True, False]]).expand(B, T)
    logits = joint(states, allowed)
    found = joint.search(logits)
    assert allowed.gather(1, logits.considered).all()
    assert allowed.gather(1, found.end).all()
    assert (logits.end.softmax(-1)[:, :, ~allowed[0]] == 0).all()
    assert torch.isfinite(logits.impossible).all()


def test_gradients_reach_every_parameter():
    joint = head()
    logits = joint(torch.randn(B, T, D), gold=torch.tensor([2, 3]))
    sum(part.square().sum() for part in (logits.start, logits.end, logits.impossible)).backward()
    for parameter in joint.parameters():
        assert parameter.grad.abs().sum() > 0


def test_bfloat16_is_close_to_float32():
    joint, states, gold = head().eval(), torch.randn(B, T, D), torch.tensor([2, 3])
    allowed = torch.ones(B, T, dtype=torch.bool)
    exact = joint(states, allowed, gold)
    rounded = joint.bfloat16()(states.bfloat16(), allowed, gold)
    for name in ("start", "end", "impossible"):
        found, expected = getattr(rounded, name), getattr(exact, name)
        assert found.dtype == torch.bfloat16
        assert (found.float() - expected).norm() < 0.05 * expected.norm()


def test_export_keeps_batch_and_length_dynamic_across_the_beam_width():
    joint = head(beam=4).eval()
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    example = (torch.randn(B, T, D), torch.ones(B, T, dtype=torch.bool))
    exported = torch.export.export(joint, example, dynamic_shapes=(sizes, sizes)).module()
    for length in (2, 4, 9):
        states, allowed = torch.randn(3, length, D), torch.ones(3, length, dtype=torch.bool)
        for found, expected in zip(exported(states, allowed), joint(states, allowed), strict=True):
            torch.testing.assert_close(found, expected)
