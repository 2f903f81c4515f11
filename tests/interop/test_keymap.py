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


def test_placeholders_carry_over_and_the_first_row_that_matches_holds():
    names = ["blocks.0.stack.0.weight", "blocks.11.stack.2.bias"]
    pairs = TABLE.pairs(names, last=2)
    assert [their for their, _ in pairs.values()] == ["layer.0.0.weight", "layer.11.final.bias"]


@pytest.mark.parametrize(
    ("name", "shape"), [("same", (2, 3)), ("transpose", (2, 3)), ("depthwise", (4, 3)), ("trailing", (4,))]
)
def test_every_reshaping_has_an_inverse(name, shape):
    ours = torch.randn(shape)
    assert torch.equal(RESHAPINGS[name].to_ours(RESHAPINGS[name].to_theirs(ours)), ours)


def test_a_table_undoes_itself():
    ours = {"word": torch.randn(3, 2), "kernel": torch.randn(4, 3), "bias": torch.randn(4)}
    theirs = TABLE.to_theirs(ours)
    assert {name: tuple(tensor.shape) for name, tensor in theirs.items()} == {
        "words": (3, 2),
        "conv.weight": (4, 1, 3),
        "conv.bias": (4, 1),
    }
    again = TABLE.to_ours(theirs, like=ours)
    assert all(torch.equal(again[name], ours[name]) for name in ours)


def test_copies_and_counting_buffers_are_checked_and_dropped():
    word = torch.randn(3, 2)
    theirs = {"words": word, "decoder": word.clone(), "ids": torch.arange(5)[None]}
    assert list(TABLE.to_ours(theirs, like={"word": word})) == ["word"]


def test_a_copy_alone_stands_in_for_its_original():
    word = torch.randn(3, 2)
    assert torch.equal(TABLE.to_ours({"decoder": word}, like={"word": word})["word"], word)


@pytest.mark.parametrize(
    ("theirs", "like", "sentence"),
    [
        ({"words": torch.zeros(3), "decoder": torch.ones(3)}, {"word": 3}, "'decoder' differs from 'words'"),
        ({"words": torch.zeros(3), "ids": torch.zeros(2)}, {"word": 3}, "'ids' does not count"),
        ({"words": torch.zeros(3), "gamma": torch.zeros(2)}, {"word": 3}, "no place for: 'gamma'"),
        ({"words": torch.zeros(3)}, {"word": 3, "bias": 2}, "lacks 'conv.bias'"),
        ({"words": torch.zeros(4)}, {"word": 3}, r"'words' has the shape \[4\] where the config asks for \[3\]"),
        ({}, {"lost": 3}, "no place for 'lost'"),
        ({}, {"word": 3, "other": 3}, "one place for two of our tensors: 'words'"),
    ],
)
def test_what_does_not_fit_is_named(theirs, like, sentence):
    with pytest.raises(InputError, match=sentence):
        TABLE.to_ours(theirs, like={name: torch.zeros(size) for name, size in like.items()})
