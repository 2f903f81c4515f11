"""Attention maps of one and of two models: maps, entropies and divergences by hand, the plots, incompatible models."""

import math

import pytest
import torch

from extras import needs_plots
from lightbert.analysis.plots.maps import shrink
from lightbert.analysis.sections.attention import attention_section
from lightbert.analysis.study.rows import RowEncoder, Texts
from lightbert.analysis.study.study import Settings, Study, Subject, teacher_and_student
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.load import load
from lightbert.nn.record import Record
from reading_pairs import BERT, MIXED, STUDENT, TEACHER, reader, tokenizer

TEXT = "w1 w2 $ w4"
IDS = [2, 6, 7, 5, 9, 3]
TOKENS = ["[CLS]", "w1", "w2", "$", "w4", "[SEP]"]


def pair(teacher, student, text=TEXT, **settings):
    return teacher_and_student(teacher, student, Texts((text,)), Settings(**settings))


def alone(model, text=TEXT, **settings):
    return Study((Subject("", model),), Texts((text,)), Settings(**settings))


def compare(*models, **settings):
    """KL of each layer and head."""
    return attention_section(pair(*models, **settings)).details["texts"][0]["kl"]


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
    study = pair(teacher, student)
    seen = [study.observe(which, 0) for which in (0, 1)]
    section = attention_section(study)
    assert section.details["texts"][0]["tokens"] == TOKENS
    for layer, (theirs, ours) in enumerate(zip(attention(teacher), attention(student), strict=True), start=1):
        torch.testing.assert_close(seen[0].maps(layer), theirs)
        torch.testing.assert_close(seen[1].maps(layer), ours)
        by_hand = [divergence(*each) for each in zip(theirs, ours, strict=True)]
        assert section.details["texts"][0]["kl"][layer - 1] == pytest.approx(by_hand, rel=1e-3)
        assert section.metrics[f"kl_{layer}"] == pytest.approx(sum(by_hand) / 4, rel=1e-3)
    assert len(section.metrics) == 3


@pytest.mark.parametrize("mean", [False, True])
def test_a_model_has_no_divergence_from_itself(mean):
    model = reader(STUDENT)
    assert compare(model, model, mean=mean) == [[0.0] * (1 if mean else 4)] * 3


def test_the_mean_over_heads_is_compared_on_request():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2)
    theirs, ours = attention(teacher)[0].mean(dim=0), attention(student)[0].mean(dim=0)
    assert compare(teacher, student, mean=True)[0] == pytest.approx([divergence(theirs, ours)], rel=1e-3)


def test_only_the_attention_heads_of_a_student_with_convolution_heads_are_compared():
    teacher, student = reader(TEACHER, 1), reader(MIXED, 2)
    for found, theirs, ours in zip(compare(teacher, student), attention(teacher), attention(student), strict=True):
        assert found == pytest.approx([divergence(*each) for each in zip(theirs[:2], ours, strict=True)], rel=1e-3)


def test_different_numbers_of_heads_raise_an_error_but_their_means_are_compared():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2, n_heads=2)
    with pytest.raises(
        InputError, match=r"must have the same number of heads, got 4 and 2; compare the mean over heads with --mean"
    ):
        pair(teacher, student)
    by_hand = divergence(attention(teacher)[0].mean(dim=0), attention(student)[0].mean(dim=0))
    assert compare(teacher, student, mean=True)[0] == pytest.approx([by_hand], rel=1e-3)


def test_a_teacher_can_be_wider_and_from_hugging_face(tmp_path):
    teacher, student = reader(BERT, 1, width=24), reader(STUDENT, 2)
    expected = compare(teacher, student)[2]
    huggingface.write(teacher, tmp_path / "teacher")
    assert compare(load(tmp_path / "teacher"), student)[2] == pytest.approx(expected)


def test_one_tokenizer_is_enough_and_it_does_not_truncate():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2)
    student.tokenizer = None
    teacher.tokenizer.enable_truncation(2)
    assert len(attention_section(pair(teacher, student)).details["texts"][0]["tokens"]) == 6


@pytest.mark.parametrize(
    ("changes", "text", "sentence"),
    [
        ({"depth": 2}, TEXT, "must have the same number of layers, got 3 and 2; give models of equal depth"),
        ({"vocab": 21}, TEXT, "must have the same vocabulary, got 20 and 21 entries"),
        ({}, " \n", "has no tokens; give a sentence"),
        ({}, "w1 " * 11, "the text must have at most 12 tokens, got 13; give a shorter one"),
        ({"positions": 8}, "w1 " * 7, "the text must have at most 8 tokens, got 9"),
    ],
)
def test_models_that_can_t_be_compared_raise_one_sentence(changes, text, sentence):
    with pytest.raises(InputError, match=sentence):
        attention_section(pair(reader(TEACHER), reader(STUDENT, **changes), text))


def test_different_vocabularies_and_missing_tokenizers_raise_an_error():
    teacher, student = reader(TEACHER), reader(STUDENT)
    student.tokenizer = tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w2", "w1"])
    with pytest.raises(InputError, match="the same vocabulary, but their token ids differ"):
        pair(teacher, student)
    teacher.tokenizer = student.tokenizer = None
    with pytest.raises(InputError, match="neither model has a tokenizer"):
        pair(teacher, student)


def test_a_layer_out_of_range_raises_an_error():
    for layer in (0, 4, -1):
        with pytest.raises(InputError, match=rf"layers must be in \[1, 3\], got {layer}"):
            pair(reader(TEACHER), reader(STUDENT), layers=(layer,))


def drawn(study, name="layers"):
    [picture] = [each for each in attention_section(study).pictures if each.name == name]
    return picture.draw()


def maps_of(row):
    """The panels of a row that show a map."""
    return [panel for panel in row.axes if panel.images]


@needs_plots
def test_the_plot_has_a_row_per_layer_with_the_heads_of_both_models():
    teacher, student = reader(TEACHER, 1), reader(MIXED, 2)
    study = pair(teacher, student, layers=(3, 1))
    metrics = attention_section(study).metrics
    rows = drawn(study).subfigs
    assert [row.get_suptitle() for row in rows] == [
        f"layer {layer}: KL(teacher ‖ student) = {metrics[f'kl_{layer}']:.4g}" for layer in (3, 1)
    ]
    for row, layer in zip(rows, (3, 1), strict=True):
        panels = maps_of(row)
        assert [panel.get_title() for panel in panels] == [
            "teacher, head 1",
            "teacher, head 2",
            "student, head 1",
            "student, head 2",
        ]
        shown = torch.stack([torch.tensor(panel.images[0].get_array().data) for panel in panels])
        expected = torch.cat([attention(teacher)[layer - 1][:2], attention(student)[layer - 1]])
        torch.testing.assert_close(shown, expected)
        assert len({panel.images[0].get_clim() for panel in panels}) == 1
        assert row.axes[-1].get_ylabel() == "attention from row to column"


@needs_plots
def test_tokens_label_the_last_map_of_each_column_and_the_first_of_each_row():
    panels = maps_of(drawn(alone(reader(STUDENT, 2, n_heads=6, block_width=12), layers=(1,))).subfigs[0])
    names = [panel.get_title() for panel in panels]
    assert names == [f"head {number}" for number in range(1, 7)]
    below = {panel.get_title() for panel in panels if [each.get_text() for each in panel.get_xticklabels()] == TOKENS}
    beside = {panel.get_title() for panel in panels if [each.get_text() for each in panel.get_yticklabels()] == TOKENS}
    assert below == {"head 3", "head 4", "head 5", "head 6"}
    assert beside == {"head 1", "head 5"}
    assert not any(label.get_parse_math() for panel in panels for label in panel.get_xticklabels())


@needs_plots
def test_of_many_tokens_every_nth_is_labelled_and_the_maps_shrink():
    model = reader(STUDENT, 2, positions=400)
    figure = drawn(alone(model, "w1 " * 390, layers=(1,)))
    panel = maps_of(figure.subfigs[0])[0]
    assert 5 <= len(panel.get_yticks()) <= 60
    assert max(panel.images[0].get_array().shape) <= 256
    assert figure.get_size_inches()[0] <= 10


def test_maps_shrink_by_averaging_neighbours():
    maps = torch.arange(16.0).view(1, 4, 4)
    assert shrink(maps, 2).tolist() == [[[2.5, 4.5], [10.5, 12.5]]]
    assert shrink(maps, 4) is maps


@needs_plots
def test_the_mean_over_heads_has_one_map_per_model(tmp_path):
    figure = drawn(pair(reader(TEACHER, 1), reader(STUDENT, 2), mean=True, layers=(2,)))
    assert [panel.get_title() for panel in maps_of(figure.subfigs[0])] == [
        "teacher, mean of heads",
        "student, mean of heads",
    ]
    figure.savefig(tmp_path / "maps.png")


@needs_plots
def test_the_mean_over_heads_of_one_model_has_a_map_per_layer():
    model = reader(STUDENT, 2)
    panels = maps_of(drawn(alone(model, mean=True)).subfigs[0])
    assert [panel.get_title() for panel in panels] == ["layer 1", "layer 2", "layer 3"]
    for panel, maps in zip(panels, attention(model), strict=True):
        torch.testing.assert_close(torch.tensor(panel.images[0].get_array().data), maps.mean(dim=0))


def test_the_maps_of_one_model_have_the_entropy_of_each_head():
    model = reader(MIXED, 2)
    section = attention_section(alone(model))
    [text] = section.details["texts"]
    for layer, maps in enumerate(attention(model), start=1):
        by_hand = [[-sum(p * math.log(p) for p in row) for row in head] for head in maps.tolist()]
        assert text["entropy"][layer - 1] == pytest.approx([sum(rows) / len(rows) for rows in by_hand], rel=1e-3)
        assert section.metrics[f"entropy_{layer}"] == pytest.approx(sum(text["entropy"][layer - 1]) / 2)


@needs_plots
def test_the_first_picture_is_the_mean_over_layers_and_heads_of_each_model():
    models = reader(STUDENT, 2), reader(BERT, 1)
    study = Study((Subject("a", models[0]), Subject("b", models[1], "other_")), Texts((TEXT,)))
    section = attention_section(study)
    assert [each.name for each in section.pictures] == ["mean", "heads", "layers"]
    panels = maps_of(section.pictures[0].draw().subfigs[0])
    assert [panel.get_title() for panel in panels] == ["a: mean of layers and heads", "b: mean of layers and heads"]
    for panel, model in zip(panels, models, strict=True):
        shown = torch.tensor(panel.images[0].get_array().data)
        torch.testing.assert_close(shown, torch.stack(attention(model)).mean(dim=(0, 1)))
    assert {"entropy_1", "other_entropy_3"} <= section.metrics.keys()


@needs_plots
@pytest.mark.parametrize("name", ["convbert-small-en", "org/a-model-with-a-name-that-is-much-too-long-for-one-line"])
def test_the_titles_of_maps_side_by_side_overlap_neither_each_other_nor_the_edge(name):
    models = reader(STUDENT, 2), reader(BERT, 1)
    study = Study((Subject(name, models[0]), Subject(name, models[1], "other_")), Texts((TEXT,)))
    figure = attention_section(study).pictures[0].draw()
    figure.draw_without_rendering()
    first, second = (panel.title.get_window_extent() for panel in maps_of(figure.subfigs[0]))
    assert figure.bbox.x0 <= first.x0
    assert first.x1 < second.x0
    assert max(first.y1, second.y1) <= figure.bbox.y1


@needs_plots
def test_all_heads_of_all_layers_are_in_one_picture():
    figure = drawn(alone(reader(STUDENT, 2)), "heads")
    [panel] = maps_of(figure)
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "2", "3"]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["1", "2", "3", "4"]
    image = panel.images[0].get_array()
    assert image.shape[0] * 3 == image.shape[1] * 4
    # Every map has its own scale, up to 1.
    assert image.max() == 1.0


def test_models_of_different_depth_and_vocabulary_are_drawn_side_by_side():
    other = reader(BERT, 1, depth=2, n_heads=2)
    other.tokenizer = tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w2", "w1"])
    study = Study((Subject("a", reader(STUDENT, 2)), Subject("b", other, "other_")), Texts((TEXT,)))
    metrics = attention_section(study).metrics
    assert sum(name.startswith("entropy") for name in metrics) == 3
    assert sum(name.startswith("other_entropy") for name in metrics) == 2


def test_a_model_without_a_tokenizer_can_t_be_shown():
    model = reader(STUDENT)
    model.tokenizer = None
    with pytest.raises(InputError, match="the model has no tokenizer"):
        attention_section(alone(model))


def test_texts_of_files_are_truncated_and_given_texts_are_not():
    encoder = RowEncoder(tokenizer(), 5)
    assert encoder.row("w1 w2 w3 w4 w5", truncate=True) == [2, 6, 7, 8, 3]
    with pytest.raises(InputError, match="at most 5 tokens, got 7"):
        encoder.row("w1 w2 w3 w4 w5")


def test_a_model_that_diverged_raises_an_error():
    model = reader(STUDENT)
    with torch.no_grad():
        model.table.fill_(math.nan)
    with pytest.raises(InputError, match="the attention of the model is not finite"):
        attention_section(alone(model))
