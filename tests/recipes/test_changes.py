"""`change.*`: changes of a preset in a recipe."""

import pytest

from lightbert.config import from_mapping
from lightbert.errors import InputError
from lightbert.models import preset
from lightbert.train.settings import Recipe
from lightbert.train.starting_model import starting_config


def config_of(**values):
    return starting_config(from_mapping(Recipe, {"data": "data", "out": "out", "steps": 1, **values}))


def test_only_the_named_keys_change():
    changed = config_of(model="convbert-small", change={"kernel": 5, "activation": "relu"})
    fields = vars(preset("convbert-small"))
    assert vars(changed) == {**fields, "kernel": 5, "activation": "relu"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kernl": 5}, "unknown key 'kernl'; did you mean 'kernel'?"),
        ({"kernel": 5.5}, "kernel must be an integer, got 5.5"),
        ({"kernel": 0}, "kernel must be >= 1, got 0"),
        ({"dropout": 2}, "dropout must be in [0, 1), got 2.0"),
        ({"convolution": "sapn"}, "unknown convolution 'sapn'; did you mean 'span'?"),
    ],
)
def test_a_change_of_an_unknown_key_raises_an_error(change, sentence):
    with pytest.raises(InputError) as error:
        config_of(model="convbert-small", change=change)
    assert str(error.value) == sentence


def test_longer_texts_need_more_positions_and_a_recipe_can_set_even_more():
    assert config_of(model="convbert-tiny", length=256).positions == 256
    assert config_of(model="convbert-tiny", length=16, change={"positions": 64}).positions == 64
