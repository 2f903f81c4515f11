"""Attention maps of one and of two models: maps, entropies and divergences by hand, the plots, incompatible models."""

import math

import pytest
import torch

from extras import needs_plots
from lightbert.analysis.attention import attention_section, shrink
from lightbert.analysis.study import RowEncoder, Settings, Study, Subject, Texts, teacher_and_student
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.load import load
from lightbert.nn.record import Record
from reading_pairs import BERT, MIXED, STUDENT, TEACHER, reader, tokenizer

TEXT = "w1 w2 $ w4"
IDS = [2, 6, 7, 5, 9, 3]
TOKENS = ["[CLS]", "w1", "w2", "$", "w4", "[SEP]"]
OTHER_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w2", "w1"]


def pair(teacher, student, text=TEXT, **settings):
    return teacher_and_student(teacher, student, Texts((text,)), Settings(**settings))


def alone(model, text=TEXT, **settings):
    return Study((Subject("", model),), Texts((text,)), Settings(**settings))


def side_by_side(first, second, names=("a", "b")):
    return Study((Subject(names[0], first), Subject(names[1], second, "other_")), Texts((TEXT,)))


def kl(*models, **settings):
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
    rows = [
        sum(p * math.log(p / q) for p, q in zip(*rows, strict=True))
        for rows in zip(teacher.tolist(), student.tolist(), strict=True)
    ]
    return sum(rows) / len(rows)


def drawn(study, name="layers"):
    [picture] = [picture for picture in attention_section(study).pictures if picture.name == name]
    return picture.draw()


def maps_of(row):
    """The panels of a row that show a map."""
    return [panel for panel in row.axes if panel.images]


def titles(row):
    return [panel.get_title() for panel in maps_of(row)]


def shown(panel):
    return torch.tensor(panel.images[0].get_array().data)


def labels(ticks):
    return [label.get_text() for label in ticks]


def test_maps_are_the_attention_of_the_models_and_divergences_are_those_of_the_maps():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2)
    study = pair(teacher, student)
    observations = [study.observe(which, 0) for which in (0, 1)]
    section = attention_section(study)
    assert section.details["texts"][0]["tokens"] == TOKENS
    for layer, maps in enumerate(zip(attention(teacher), attention(student), strict=True), start=1):
        for observation, expected in zip(observations, maps, strict=True):
            torch.testing.assert_close(observation.maps(layer), expected)
        by_hand = [divergence(*heads) for heads in zip(*maps, strict=True)]
        assert section.details["texts"][0]["kl"][layer - 1] == pytest.approx(by_hand, rel=1e-3)
        assert section.metrics[f"kl_{layer}"] == pytest.approx(sum(by_hand) / 4, rel=1e-3)
    assert len(section.metrics) == 3
    # A model has no divergence from itself.
    for mean in (False, True):
        assert kl(student, student, mean=mean) == [[0.0] * (1 if mean else 4)] * 3


def test_only_the_attention_heads_of_a_student_with_convolution_heads_are_compared():
    teacher, student = reader(TEACHER, 1), reader(MIXED, 2)
    for layer, *maps in zip(kl(teacher, student), attention(teacher), attention(student), strict=True):
        by_hand = [divergence(*heads) for heads in zip(maps[0][:2], maps[1], strict=True)]
        assert layer == pytest.approx(by_hand, rel=1e-3)


def test_different_numbers_of_heads_raise_an_error_but_their_means_are_compared():
    teacher, student = reader(TEACHER, 1), reader(STUDENT, 2, n_heads=2)
    with pytest.raises(
        InputError, match=r"must have the same number of heads, got 4 and 2; compare the mean over heads with --mean"
    ):
        pair(teacher, student)
    by_hand = divergence(attention(teacher)[0].mean(dim=0), attention(student)[0].mean(dim=0))
    assert kl(teacher, student, mean=True)[0] == pytest.approx([by_hand], rel=1e-3)


def test_a_teacher_can_be_wider_and_from_hugging_face_and_one_tokenizer_is_enough(tmp_path):
    teacher, student = reader(BERT, 1, width=24), reader(STUDENT, 2)
    expected = kl(teacher, student)[2]
    huggingface.write(teacher, tmp_path / "teacher")
    teacher = load(tmp_path / "teacher")
    student.tokenizer = None
    # A tokenizer that truncates is read without truncation.
    teacher.tokenizer.enable_truncation(2)
    assert kl(teacher, student)[2] == pytest.approx(expected)


def test_models_and_texts_that_can_t_be_compared_raise_one_sentence():
    for changes, text, sentence in (
        ({"depth": 2}, TEXT, "must have the same number of layers, got 3 and 2; give models of equal depth"),
        ({"vocab": 21}, TEXT, "must have the same vocabulary, got 20 and 21 entries"),
        ({}, " \n", "has no tokens; give a sentence"),
        ({}, "w1 " * 11, "the text must have at most 12 tokens, got 13; give a shorter one"),
        ({"positions": 8}, "w1 " * 7, "the text must have at most 8 tokens, got 9"),
    ):
        with pytest.raises(InputError, match=sentence):
            attention_section(pair(reader(TEACHER), reader(STUDENT, **changes), text))
    teacher, student = reader(TEACHER), reader(STUDENT)
    for layer in (0, 4, -1):
        with pytest.raises(InputError, match=rf"layers must be in \[1, 3\], got {layer}"):
            pair(teacher, student, layers=(layer,))
    student.tokenizer = tokenizer(OTHER_WORDS)
    with pytest.raises(InputError, match="the same vocabulary, but their token ids differ"):
        pair(teacher, student)
    teacher.tokenizer = student.tokenizer = None
    with pytest.raises(InputError, match="neither model has a tokenizer"):
        pair(teacher, student)
    with pytest.raises(InputError, match="the model has no tokenizer"):
        attention_section(alone(student))
    with torch.no_grad():
        teacher.table.fill_(math.nan)
    teacher.tokenizer = tokenizer()
    with pytest.raises(InputError, match="the attention of the model is not finite"):
        attention_section(alone(teacher))


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
        assert titles(row) == [f"{name}, head {head}" for name in ("teacher", "student") for head in (1, 2)]
        expected = torch.cat([attention(teacher)[layer - 1][:2], attention(student)[layer - 1]])
        torch.testing.assert_close(torch.stack([*map(shown, panels)]), expected)
        assert len({panel.images[0].get_clim() for panel in panels}) == 1
        assert row.axes[-1].get_ylabel() == "attention from row to column"


@needs_plots
def test_tokens_label_the_last_map_of_each_column_and_the_first_of_each_row():
    row = drawn(alone(reader(STUDENT, 2, n_heads=6, block_width=12), layers=(1,))).subfigs[0]
    assert titles(row) == [f"head {number}" for number in range(1, 7)]
    panels = maps_of(row)
    below = {panel.get_title() for panel in panels if labels(panel.get_xticklabels()) == TOKENS}
    left = {panel.get_title() for panel in panels if labels(panel.get_yticklabels()) == TOKENS}
    assert below == {"head 3", "head 4", "head 5", "head 6"}
    assert left == {"head 1", "head 5"}
    assert not any(label.get_parse_math() for panel in panels for label in panel.get_xticklabels())


@needs_plots
def test_of_many_tokens_every_nth_is_labelled_and_the_maps_shrink_by_averaging_neighbours():
    figure = drawn(alone(reader(STUDENT, 2, positions=400), "w1 " * 390, layers=(1,)))
    panel = maps_of(figure.subfigs[0])[0]
    assert 5 <= len(panel.get_yticks()) <= 60
    assert max(shown(panel).shape) <= 256
    assert figure.get_size_inches()[0] <= 10
    maps = torch.arange(16.0).view(1, 4, 4)
    assert shrink(maps, 2).tolist() == [[[2.5, 4.5], [10.5, 12.5]]]
    assert shrink(maps, 4) is maps


@needs_plots
def test_the_mean_over_heads_has_one_map_per_model_or_per_layer(tmp_path):
    model = reader(STUDENT, 2)
    figure = drawn(pair(reader(TEACHER, 1), model, mean=True, layers=(2,)))
    assert titles(figure.subfigs[0]) == ["teacher, mean of heads", "student, mean of heads"]
    figure.savefig(tmp_path / "maps.png")
    row = drawn(alone(model, mean=True)).subfigs[0]
    assert titles(row) == ["layer 1", "layer 2", "layer 3"]
    for panel, maps in zip(maps_of(row), attention(model), strict=True):
        torch.testing.assert_close(shown(panel), maps.mean(dim=0))


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
    section = attention_section(side_by_side(*models))
    assert [picture.name for picture in section.pictures] == ["mean", "heads", "layers"]
    row = section.pictures[0].draw().subfigs[0]
    assert titles(row) == ["a: mean of layers and heads", "b: mean of layers and heads"]
    for panel, model in zip(maps_of(row), models, strict=True):
        torch.testing.assert_close(shown(panel), torch.stack(attention(model)).mean(dim=(0, 1)))
    assert {"entropy_1", "other_entropy_3"} <= section.metrics.keys()


@needs_plots
@pytest.mark.parametrize("name", ["convbert-small-en", "org/a-model-with-a-name-that-is-much-too-long-for-one-line"])
def test_the_titles_of_maps_side_by_side_overlap_neither_each_other_nor_the_edge(name):
    study = side_by_side(reader(STUDENT, 2), reader(BERT, 1), (name, name))
    figure = attention_section(study).pictures[0].draw()
    figure.draw_without_rendering()
    first, second = (panel.title.get_window_extent() for panel in maps_of(figure.subfigs[0]))
    assert figure.bbox.x0 <= first.x0
    assert first.x1 < second.x0
    assert max(first.y1, second.y1) <= figure.bbox.y1


@needs_plots
def test_all_heads_of_all_layers_are_in_one_picture():
    [panel] = maps_of(drawn(alone(reader(STUDENT, 2)), "heads"))
    assert labels(panel.get_xticklabels()) == ["1", "2", "3"]
    assert labels(panel.get_yticklabels()) == ["1", "2", "3", "4"]
    image = panel.images[0].get_array()
    assert image.shape[0] * 3 == image.shape[1] * 4
    # Every map has its own scale, up to 1.
    assert image.max() == 1.0


def test_models_of_different_depth_and_vocabulary_are_drawn_side_by_side():
    other = reader(BERT, 1, depth=2, n_heads=2)
    other.tokenizer = tokenizer(OTHER_WORDS)
    metrics = attention_section(side_by_side(reader(STUDENT, 2), other)).metrics
    assert sum(name.startswith("entropy") for name in metrics) == 3
    assert sum(name.startswith("other_entropy") for name in metrics) == 2


def test_texts_of_files_are_truncated_and_typed_texts_are_not():
    encoder = RowEncoder(tokenizer(), 5)
    assert encoder.row("w1 w2 w3 w4 w5", truncate=True) == [2, 6, 7, 8, 3]
    with pytest.raises(InputError, match="at most 5 tokens, got 7"):
        encoder.row("w1 w2 w3 w4 w5")
