import pytest
import torch

from lightbert.errors import InputError
from lightbert.interop.keymap import RESHAPINGS, Keymap, PositionIds, Row, TiedCopy

TABLE = Keymap(
    rows=(
        Row("blocks.{i}.stack.{last}.{p}", "layer.{i}.final.{p}"),
        Row("blocks.{i}.stack.{j}.{p}", "layer.{i}.{j}.{p}"),
        Row("word", "words"),
        Row("other", "words"),
        Row("kernel", "conv.weight", "depthwise"),
        Row("bias", "conv.bias", "trailing"),
    ),
    redundant=(TiedCopy("decoder", "words"), PositionIds("ids")),
)


def test_placeholders_are_copied_and_the_first_matching_row_applies():
    names = ["blocks.0.stack.0.weight", "blocks.11.stack.2.bias"]
    pairs = TABLE.pairs(names, last=2)
    assert [their for their, _ in pairs.values()] == ["layer.0.0.weight", "layer.11.final.bias"]


def test_every_reshaping_has_an_inverse():
    for name, shape in (("same", (2, 3)), ("transpose", (2, 3)), ("depthwise", (4, 3)), ("trailing", (4,))):
        ours = torch.randn(shape)
        assert torch.equal(RESHAPINGS[name].to_ours(RESHAPINGS[name].to_theirs(ours)), ours)


def test_a_keymap_round_trips():
    ours = {"word": torch.randn(3, 2), "kernel": torch.randn(4, 3), "bias": torch.randn(4)}
    theirs = TABLE.to_theirs(ours)
    assert {name: tuple(tensor.shape) for name, tensor in theirs.items()} == {
        "words": (3, 2),
        "conv.weight": (4, 1, 3),
        "conv.bias": (4, 1),
    }
    again = TABLE.to_ours(theirs, like=ours)
    assert all(torch.equal(again[name], ours[name]) for name in ours)


def test_tied_copies_and_position_ids_are_checked_and_dropped():
    word = torch.randn(3, 2)
    theirs = {"words": word, "decoder": word.clone(), "ids": torch.arange(5)[None]}
    assert list(TABLE.to_ours(theirs, like={"word": word})) == ["word"]


def test_a_tied_copy_replaces_a_missing_original():
    word = torch.randn(3, 2)
    assert torch.equal(TABLE.to_ours({"decoder": word}, like={"word": word})["word"], word)


def test_mismatched_tensors_are_an_error_that_names_them():
    for theirs, like, sentence in (
        ({"words": torch.zeros(3), "decoder": torch.ones(3)}, {"word": 3}, "'decoder' must equal 'words'"),
        ({"words": torch.zeros(3), "ids": torch.zeros(2)}, {"word": 3}, "'ids' must be 0, 1, 2"),
        ({"words": torch.zeros(3), "gamma": torch.zeros(2)}, {"word": 3}, "'gamma' unexpected"),
        ({"words": torch.zeros(3)}, {"word": 3, "bias": 2}, "'conv.bias' missing"),
        ({"words": torch.zeros(4)}, {"word": 3}, r"'words' must have the shape \[3\], got \[4\]"),
        ({}, {"lost": 3}, "no tensor for 'lost'"),
        ({}, {"word": 3, "other": 3}, "map to the same tensor of the other library: 'words'"),
    ):
        with pytest.raises(InputError, match=sentence):
            TABLE.to_ours(theirs, like={name: torch.zeros(size) for name, size in like.items()})
