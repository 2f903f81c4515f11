"""Layer-wise learning rate decay."""

import pytest

from lightbert.train.schedule import layer_rate


@pytest.mark.parametrize(
    ("name", "released", "corrected"),
    [
        ("model.heads.classify.output.weight", 0, 0),
        ("model.blocks.11.output.weight", 2, 1),
        ("model.blocks.0.mixer.query.bias", 13, 12),
        ("model.embeddings.word.weight", 14, 13),
        ("model.embeddings.project.weight", 14, 13),
    ],
)
def test_twelve_layers_have_the_released_powers_and_the_corrected_ones(name, released, corrected):
    assert layer_rate(name, 12, 0.8) == pytest.approx(0.8**released)
    assert layer_rate(name, 12, 0.8, "corrected") == pytest.approx(0.8**corrected)


def test_without_decay_all_layers_have_the_same_rate():
    names = ("model.heads.span.output.weight", "model.blocks.3.norm.bias", "model.embeddings.norm.weight")
    assert [layer_rate(name, 4, 1.0) for name in names] == [1.0, 1.0, 1.0]
