"""Attention maps of two models: maps, divergences computed by hand, the plot, incompatible models."""

import math

import pytest
import torch

from extras import needs_plots
from lightbert.analysis.attention_comparison import compare_attention
from lightbert.analysis.attention_maps import attention_maps
from lightbert.analysis.attention_plot import plot_attention, plot_maps
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.load import load
from lightbert.nn.record import Record
from reading_pairs import BERT, MIXED, STUDENT, TEACHER, reader, tokenizer

TEXT = "w1 w2 $ w4"
IDS = [2, 6, 7, 5, 9, 3]


def attention(model):
    """The attention maps of each layer [H, T, T], as recorded by the models."""
    record = Record()
    with torch.no_grad():
        model(torch.tensor([IDS]), record=record)
    return [maps[0] for maps in record.attention]


def divergence(teacher, student):
    """KL of two maps [T, T] in plain Python, averaged over rows."""
    rows = zip(teacher.tolist(), student.tolist(), strict=True)
    each = [sum(p * math.log(p / q) for p, q in zip(*pair, strict=True)) for pair in rows]
    return sum(each) / len(each)


def test_maps_are_the_attention_of_the_models_and_divergences_are_those_of_the_maps():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2)
    compared = compare_attention(teacher, student, TEXT)
    assert compared.tokens == ("[CLS]", "w1", "w2", "$", "w4", "[SEP]")
    assert [each.layer for each in compared.layers] == [1, 2, 3]
    for each, theirs, ours in zip(compared.layers, attention(teacher), attention(student), strict=True):
        torch.testing.assert_close(each.teacher, theirs)
        torch.testing.assert_close(each.student, ours)
        by_hand = [divergence(*pair) for pair in zip(theirs, ours, strict=True)]
        assert each.divergences == pytest.approx(by_hand, rel=1e-3)
        assert each.divergence == pytest.approx(sum(by_hand) / 4, rel=1e-3)


@pytest.mark.parametrize("mean", [False, True])
def test_a_model_has_no_divergence_from_itself(mean):
    model = reader(STUDENT)
    assert [each.divergence for each in compare_attention(model, model, TEXT, mean=mean).layers] == [0.0] * 3


def test_the_mean_over_heads_is_compared_on_request():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2)
    first = compare_attention(teacher, student, TEXT, mean=True).layers[0]
    theirs, ours = attention(teacher)[0].mean(dim=0), attention(student)[0].mean(dim=0)
    torch.testing.assert_close(first.teacher, theirs[None])
    torch.testing.assert_close(first.student, ours[None])
    assert first.divergences == pytest.approx([divergence(theirs, ours)], rel=1e-3)


def test_only_the_attention_heads_of_a_student_with_convolution_heads_are_compared():
    teacher, student = reader(TEACHER, 1), reader(MIXED, 2)
    compared = compare_attention(teacher, student, TEXT)
    for each, theirs, ours in zip(compared.layers, attention(teacher), attention(student), strict=True):
        assert len(each.divergences) == 2
        torch.testing.assert_close(each.teacher, theirs[:2])
        torch.testing.assert_close(each.student, ours)


def test_different_numbers_of_heads_raise_an_error_but_their_means_are_compared():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2, n_heads=2)
    with pytest.raises(
        InputError, match=r"must have the same number of heads, got 4 and 2; compare the mean over heads with --mean"
    ):
        compare_attention(teacher, student, TEXT)
    first = compare_attention(teacher, student, TEXT, mean=True).layers[0]
    assert first.divergence == pytest.approx(
        divergence(attention(teacher)[0].mean(dim=0), attention(student)[0].mean(dim=0)), rel=1e-3
    )


def test_a_teacher_can_be_wider_and_from_hugging_face(tmp_path):
    teacher, student = reader(BERT, 1, width=24), reader(STUDENT, 2)
    expected = compare_attention(teacher, student, TEXT).layers[2].divergences
    huggingface.write(teacher, tmp_path / "teacher")
    assert compare_attention(load(tmp_path / "teacher"), student, TEXT).layers[2].divergences == pytest.approx(expected)


def test_one_tokenizer_is_enough_and_it_does_not_truncate():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2)
    student.tokenizer = None
    teacher.tokenizer.enable_truncation(2)
    assert len(compare_attention(teacher, student, TEXT).tokens) == 6


@pytest.mark.parametrize(
    ("changes", "text", "sentence"),
    [
        ({"depth": 2}, TEXT, "must have the same number of layers, got 3 and 2; give models of equal depth"),
        ({"vocab": 21}, TEXT, "must have the same vocabulary, got 20 and 21 entries"),
        ({}, "", "the text '' has no tokens; give a sentence"),
        ({}, " \n", "has no tokens"),
        ({}, "w1 " * 11, "the text must have at most 12 tokens, got 13; give a shorter one"),
        ({"positions": 8}, "w1 " * 7, "the text must have at most 8 tokens, got 9"),
    ],
)
def test_models_that_can_t_be_compared_raise_one_sentence(changes, text, sentence):
    with pytest.raises(InputError, match=sentence):
        compare_attention(reader(TEACHER), reader(STUDENT, **changes), text)


def test_different_vocabularies_and_missing_tokenizers_raise_an_error():
    teacher, student = reader(TEACHER), reader(STUDENT)
    student.tokenizer = tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w2", "w1"])
    with pytest.raises(InputError, match="the same vocabulary, but their token ids differ"):
        compare_attention(teacher, student, TEXT)
    teacher.tokenizer = student.tokenizer = None
    with pytest.raises(InputError, match="neither model has a tokenizer"):
        compare_attention(teacher, student, TEXT)


def test_a_layer_out_of_range_raises_an_error():
    compared = compare_attention(reader(TEACHER), reader(STUDENT), TEXT)
    assert [each.layer for each in compared.of([3, 1]).layers] == [3, 1]
    for layer in (0, 4, -1):
        with pytest.raises(InputError, match=rf"layers must be in \[1, 3\], got {layer}"):
            compared.of([layer])


def maps_of(row):
    """The panels of a row that show a map."""
    return [panel for panel in row.axes if panel.images]


@needs_plots
def test_the_plot_has_a_row_per_layer_with_the_heads_of_both_models():
    compared = compare_attention(reader(TEACHER, 1), reader(MIXED, 2), TEXT).of([1, 3])
    rows = plot_attention(compared).subfigs
    assert [row.get_suptitle() for row in rows] == [
        f"layer {each.layer}: KL(teacher ‖ student) = {each.divergence:.4g}" for each in compared.layers
    ]
    for row, layer in zip(rows, compared.layers, strict=True):
        panels = maps_of(row)
        assert [panel.get_title() for panel in panels] == [
            "teacher, head 1",
            "teacher, head 2",
            "student, head 1",
            "student, head 2",
        ]
        shown = torch.stack([torch.tensor(panel.images[0].get_array().data) for panel in panels])
        assert torch.equal(shown, torch.cat([layer.teacher, layer.student]))
        assert len({panel.images[0].get_clim() for panel in panels}) == 1
        assert row.axes[-1].get_ylabel() == "attention from row to column"


@needs_plots
def test_tokens_label_the_columns_of_every_map_and_the_rows_of_the_first_map_of_each_model():
    compared = compare_attention(reader(TEACHER, 1), reader(STUDENT, 2), TEXT)
    panels = maps_of(plot_attention(compared).subfigs[0])
    for number, panel in enumerate(panels):
        assert [label.get_text() for label in panel.get_xticklabels()] == [*compared.tokens]
        assert [label.get_text() for label in panel.get_yticklabels()] == (
            [*compared.tokens] if number % 4 == 0 else []
        )
        assert not any(label.get_parse_math() for label in panel.get_xticklabels())


@needs_plots
def test_the_mean_over_heads_has_one_map_per_model(tmp_path):
    figure = plot_attention(compare_attention(reader(TEACHER, 1), reader(STUDENT, 2), TEXT, mean=True).of([2]))
    assert [panel.get_title() for panel in maps_of(figure.subfigs[0])] == [
        "teacher, mean of heads",
        "student, mean of heads",
    ]
    figure.savefig(tmp_path / "maps.png")


def test_the_maps_of_one_model_have_the_entropy_of_each_head():
    model = reader(MIXED, 2)
    found = attention_maps(model, TEXT)
    assert found.tokens == ("[CLS]", "w1", "w2", "$", "w4", "[SEP]")
    for each, maps in zip(found.layers, attention(model), strict=True):
        torch.testing.assert_close(each.maps, maps)
        by_hand = [[-sum(p * math.log(p) for p in row) for row in head] for head in maps.tolist()]
        assert each.entropies == pytest.approx([sum(rows) / len(rows) for rows in by_hand], rel=1e-3)
        assert each.entropy == pytest.approx(sum(each.entropies) / 2)


def test_the_mean_over_the_heads_of_one_model():
    model = reader(STUDENT, 2)
    first = attention_maps(model, TEXT, mean=True).layers[0]
    torch.testing.assert_close(first.maps, attention(model)[0].mean(dim=0)[None])


def test_a_model_without_a_tokenizer_can_t_be_shown():
    model = reader(STUDENT)
    model.tokenizer = None
    with pytest.raises(InputError, match="the model has no tokenizer"):
        attention_maps(model, TEXT)


def grid_of(figure):
    """The titles of the maps of the first layer, row by row, from top to bottom."""
    figure.canvas.draw()
    panels = maps_of(figure.subfigs[0])
    tops = sorted({round(panel.get_position().y1, 3) for panel in panels}, reverse=True)
    rows = [[panel for panel in panels if round(panel.get_position().y1, 3) == top] for top in tops]
    return [[panel.get_title() for panel in sorted(row, key=lambda each: each.get_position().x0)] for row in rows]


@needs_plots
def test_many_heads_continue_in_the_next_row():
    model = reader(STUDENT, 2, n_heads=6, block_width=12)
    alone = plot_maps(attention_maps(model, TEXT).of([1]))
    assert grid_of(alone) == [["head 1", "head 2", "head 3", "head 4"], ["head 5", "head 6"]]
    both = plot_attention(compare_attention(model, model, TEXT).of([1]))
    assert grid_of(both) == [
        [f"{side}, head {head}" for side in ("teacher", "student") for head in (1, 2, 3, 4)],
        [f"{side}, head {head}" for side in ("teacher", "student") for head in (5, 6)],
    ]
    assert both.get_size_inches()[0] < 20


@needs_plots
def test_the_last_map_of_a_column_and_the_first_of_a_row_are_labelled():
    maps = attention_maps(reader(STUDENT, 2, n_heads=6, block_width=12), TEXT)
    panels = {panel.get_title(): panel for panel in maps_of(plot_maps(maps.of([1])).subfigs[0])}
    below = {name for name, panel in panels.items() if [label.get_text() for label in panel.get_xticklabels()]}
    beside = {name for name, panel in panels.items() if [label.get_text() for label in panel.get_yticklabels()]}
    assert below == {"head 3", "head 4", "head 5", "head 6"}
    assert beside == {"head 1", "head 5"}
