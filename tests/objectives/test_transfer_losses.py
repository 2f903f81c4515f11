"""Each distillation loss on small tensors, computed by hand."""

import math

import pytest
import torch

from lightbert.objectives.distill import losses
from lightbert.objectives.distill.losses import LayerTransfer, Moments, moments
from lightbert.objectives.distill.stages import Transfer

ONE = torch.ones(1, 1)
HIDDEN = float("-inf")


def test_feature_map_transfer_is_the_mean_squared_error_summed_over_tokens():
    teacher = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]])
    student = torch.tensor([[[0.0, 4.0], [3.0, 1.0]]])
    # The first token's mean is that of 1 and 4, the second's that of 9 and 1.
    assert losses.feature_map_transfer(teacher, student, torch.ones(1, 2)).item() == 7.5
    assert losses.feature_map_transfer(teacher, student, torch.tensor([[1, 0]])).item() == 2.5


def test_normalised_transfer_ignores_scale_and_shift():
    teacher = torch.tensor([[[1.0, -1.0, 1.0, -1.0]]])
    # Normalised, 3 + 2·(1, 1, -1, -1) is (1, 1, -1, -1), which differs by 2 in two of four channels.
    student = 3 + 2 * torch.tensor([[[1.0, 1.0, -1.0, -1.0]]])
    assert losses.normalised_transfer(teacher, student, ONE).item() == pytest.approx(2.0)
    assert losses.normalised_transfer(teacher, 5 * teacher - 7, ONE).item() == pytest.approx(0.0, abs=1e-9)


def test_moments_use_the_biased_variance_over_all_channels():
    mean, variance = moments(torch.tensor([[[1.0, 3.0, 5.0, 7.0]]]))
    assert (mean.item(), variance.item()) == (4.0, 5.0)


def test_statistics_transfer_is_squared_for_means_and_absolute_for_variances():
    teacher = Moments(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[2.0, 9.0]]]))
    student = Moments(torch.tensor([[4.0, 0.5]]), torch.tensor([[7.0, 8.0]]))
    mean, variance = losses.statistics_transfer(teacher, student, torch.ones(1, 2))
    assert mean.item() == 9.25
    assert variance.item() == 6.0


def test_statistics_of_several_layers_are_averaged():
    teacher = Moments(torch.tensor([[[1.0]], [[3.0]]]), torch.tensor([[[2.0]], [[6.0]]]))
    student = Moments(torch.zeros(1, 1), torch.full((1, 1), 3.0))
    mean, variance = losses.statistics_transfer(teacher, student, ONE)
    # The means of 1 and 9, and of 1 and 3.
    assert (mean.item(), variance.item()) == (5.0, 2.0)


def test_attention_transfer_is_the_kl_divergence_from_the_teacher():
    # One head attends 3:1 where the student attends 1:1, the other like the student.
    teacher = torch.tensor([[[[math.log(3.0), 0.0]], [[5.0, 5.0]]]])
    student = torch.zeros(1, 2, 1, 2)
    divergence = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert losses.attention_transfer(teacher, student, ONE).item() == pytest.approx(divergence / 2)
    other_way = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert losses.attention_transfer(student, teacher, ONE).item() == pytest.approx(other_way / 2)


def test_masked_keys_do_not_affect_attention_transfer_and_gradients_stay_finite():
    teacher = torch.tensor([[[[math.log(3.0), 0.0, HIDDEN]]]])
    student = torch.tensor([[[[0.0, 0.0, HIDDEN]]]], requires_grad=True)
    loss = losses.attention_transfer(teacher, student, ONE)
    loss.backward()
    assert loss.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    # The gradient of a cross-entropy: the student's probabilities minus the teacher's.
    torch.testing.assert_close(student.grad, torch.tensor([[[[-0.25, 0.25, 0.0]]]]))


def test_soft_prediction_compares_with_the_text_and_with_the_teacher():
    student = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]]]))
    teacher = torch.log(torch.tensor([[[0.2, 0.6, 0.2], [1 / 3, 1 / 3, 1 / 3]]]))
    loss = losses.soft_prediction(teacher, student, torch.tensor([[1, 0]]), torch.tensor([[1.0, 0.0]]))
    assert loss.mlm.item() == pytest.approx(-math.log(0.25))
    assert loss.kd.item() == pytest.approx(-0.2 * math.log(0.5) - 0.8 * math.log(0.25))
    assert loss.mixed(0.5).item() == pytest.approx(0.5 * (loss.mlm.item() + loss.kd.item()))


def test_mixed_is_the_cross_entropy_with_soft_targets():
    student, teacher, targets = torch.randn(2, 3, 7), torch.randn(2, 3, 7), torch.randint(0, 7, (2, 3))
    labels = 0.3 * torch.nn.functional.one_hot(targets, 7) + 0.7 * torch.softmax(teacher, -1)
    whole = torch.nn.functional.cross_entropy(student.flatten(0, 1), labels.flatten(0, 1), reduction="sum")
    loss = losses.soft_prediction(teacher, student, targets, torch.ones(2, 3))
    torch.testing.assert_close(loss.mixed(0.3), whole)


def test_without_a_teacher_the_kd_loss_is_zero():
    student, targets = torch.randn(1, 2, 5), torch.tensor([[3, 1]])
    loss = losses.soft_prediction(None, student, targets, torch.ones(1, 2))
    assert loss.kd.item() == 0
    torch.testing.assert_close(loss.mlm, torch.nn.functional.cross_entropy(student[0], targets[0], reduction="sum"))


def test_tokens_that_are_not_kept_may_have_any_value():
    keep = torch.tensor([[1, 0]])
    teacher, student = torch.randn(1, 2, 4), torch.randn(1, 2, 4)
    spoiled = student.clone()
    spoiled[:, 1] = float("nan")
    assert losses.feature_map_transfer(teacher, spoiled, keep) == losses.feature_map_transfer(teacher, student, keep)
    assert losses.normalised_transfer(teacher, spoiled, keep) == losses.normalised_transfer(teacher, student, keep)


def test_the_terms_of_a_layer_have_the_released_weights():
    teacher, student, keep = torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.ones(2, 3)
    scores = torch.randn(2, 2, 3, 3), torch.randn(2, 2, 3, 3)
    compared = LayerTransfer(Transfer(), heads=2)(teacher, student, keep, scores)
    mean, variance = losses.statistics_transfer(moments(teacher[None]), moments(student), keep)
    expected = 100 * losses.normalised_transfer(teacher, student, keep) + 5000 * mean + 5 * variance
    torch.testing.assert_close(compared.fmt, expected)
    torch.testing.assert_close(compared.at, losses.attention_transfer(*scores, keep))


def test_plain_feature_maps_follow_the_paper():
    teacher, student, keep = torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.ones(2, 3)
    compared = LayerTransfer(Transfer(feature_maps="plain", feature=2.0), heads=0)(teacher, student, keep)
    torch.testing.assert_close(compared.fmt, 2 * 6 * torch.nn.functional.mse_loss(student, teacher))
    assert compared.at == 0


def test_heads_that_only_one_model_has_are_not_compared():
    states, keep = torch.randn(1, 3, 8), torch.ones(1, 3)
    theirs, ours = torch.randn(1, 4, 3, 3), torch.randn(1, 2, 3, 3)
    compared = LayerTransfer(Transfer(), heads=2)(states, states, keep, (theirs, ours))
    torch.testing.assert_close(compared.at, losses.attention_transfer(theirs[:, :2], ours, keep))
