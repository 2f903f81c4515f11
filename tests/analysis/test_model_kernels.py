"""Learned and dynamic kernels: fixed, depthwise and sorted, per token, and of a word in several contexts."""

from dataclasses import replace

import pytest
import torch

from extras import needs_plots
from lightbert.analysis.kernels import (
    Occurrence,
    depthwise_kernels,
    depthwise_kernels_section,
    dynamic_kernels_section,
    find_words,
    fixed_kernels,
    fixed_kernels_section,
    kernel_overlap,
    sort_channels,
)
from lightbert.analysis.report import NotApplicableError
from lightbert.analysis.study import RowEncoder, Settings, Study, Subject, Texts, observe_rows
from lightbert.errors import InputError
from lightbert.models import build
from lightbert.nn.record import Record
from reading_pairs import BERT, MIXED, STUDENT, reader, tokenizer

COMPOSITE = replace(STUDENT, relative="composite", radius=2)


def study(model, *texts, **settings):
    return Study((Subject("", model),), Texts(texts), Settings(**settings))


def test_channels_are_sorted_by_the_next_token_minus_the_previous():
    kernels = torch.tensor([[0.0, 9.0, 1.0], [3.0, 0.0, 1.0], [1.0, 5.0, 5.0]])
    assert sort_channels(kernels).tolist() == [[3.0, 0.0, 1.0], [0.0, 9.0, 1.0], [1.0, 5.0, 5.0]]
    assert sort_channels(torch.tensor([[2.0], [1.0]])).tolist() == [[1.0], [2.0]]


def test_fixed_kernels_are_the_weights_of_each_layer():
    model = reader(COMPOSITE)
    for kernels, block in zip(fixed_kernels(model), model.blocks, strict=True):
        assert torch.equal(kernels, block.mixer.fixed)
    assert fixed_kernels(reader(replace(COMPOSITE, fixed=False))) == []


def test_depthwise_kernels_are_listed_by_what_they_convolve():
    for config, uses in (
        (MIXED, {"span-aware keys"}),
        (replace(MIXED, convolution="conventional"), {"values"}),
        (replace(MIXED, convolution="dynamic"), set()),
        (replace(STUDENT, local="query", local_kernel=3), {"span-aware keys"}),
        (COMPOSITE, set()),
        (replace(MIXED, convolution="conventional", depthwise=True), {"values", "values of the convolution heads"}),
        (replace(COMPOSITE, depthwise=True), {"values"}),
        (replace(COMPOSITE, convolved="qk"), {"query projection", "key projection"}),
        (replace(COMPOSITE, convolved="v"), {"value projection"}),
        (BERT, set()),
    ):
        kernels = depthwise_kernels(build(config))
        assert kernels.keys() == uses, config
        assert all(len(layers) == 3 for layers in kernels.values())


def test_words_are_found_as_whole_words():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "can", "##ny", "fish"]
    encoder = RowEncoder(tokenizer(words), 0)
    rows = [[2, 5, 7, 5, 6, 3], [2, 7, 5, 3]]
    assert find_words(rows, encoder, ["can"]) == {"can": [Occurrence(0, 1), Occurrence(1, 2)]}
    assert find_words(rows, encoder) == {
        "can": [Occurrence(0, 1), Occurrence(1, 2)],
        "fish": [Occurrence(0, 2), Occurrence(1, 1)],
    }
    with pytest.raises(InputError, match="the word 'ship' must occur in the texts"):
        find_words(rows, encoder, ["ship"])


def test_the_overlap_of_kernels_is_one_if_they_are_equal():
    same = torch.tensor([[[0.25, 0.75]] * 3])
    assert kernel_overlap(same) == pytest.approx(1.0)
    assert kernel_overlap(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])) == 0.0
    two = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]])
    assert kernel_overlap(two) == pytest.approx(0.5**0.5)


def test_dynamic_kernels_are_those_of_the_model():
    model = reader(MIXED, 1)
    record = Record()
    with torch.no_grad():
        model(torch.tensor([[2, 6, 7, 3]]), record=record)
    [observation] = observe_rows(model, [[2, 6, 7, 3]])
    for kernels, recorded in zip(observation.kernels, record.kernels, strict=True):
        assert kernels.shape == (2, 4, 3)
        torch.testing.assert_close(kernels, recorded[0].transpose(0, 1))


def test_the_kernels_of_a_word_in_several_contexts_are_compared():
    section = dynamic_kernels_section(study(reader(MIXED, 1), "w1 w2 w3", "w4 w2 w5", words=("w2",)))
    assert [picture.name for picture in section.pictures] == ["word-w2", "kernels-1", "kernels-2"]
    assert section.metrics.keys() == {"kernel_overlap_w2", "kernel_overlap"}
    assert 0 < section.metrics["kernel_overlap_w2"] < 1
    assert section.tables[0].columns == ("layer", "“w2”", "any two tokens")
    # The same context gives the same kernels.
    section = dynamic_kernels_section(study(reader(MIXED, 1), "w1 w2 w3", "w1 w2 w3", words=("w2",)))
    assert section.metrics["kernel_overlap_w2"] == pytest.approx(1.0, abs=1e-6)


@needs_plots
def test_the_plot_of_a_word_labels_the_tokens_of_the_window():
    [picture, *_] = dynamic_kernels_section(study(reader(MIXED, 1), "w1 w2 w3 w2", words=("w2",))).pictures
    panels = picture.draw().axes
    assert [[label.get_text() for label in panel.get_xticklabels()] for panel in panels] == [
        ["w1", "w2", "w3"],
        ["w3", "w2", "[SEP]"],
    ] * 2


@needs_plots
def test_fixed_and_depthwise_kernels_are_drawn_for_all_or_the_chosen_layers():
    model = reader(replace(COMPOSITE, depthwise=True))
    for section in (fixed_kernels_section, depthwise_kernels_section):
        for layers, count in (((), 3), ((2,), 1)):
            [picture] = section(study(model, layers=layers)).pictures
            figure = picture.draw()
            figure.canvas.draw()
            if section is fixed_kernels_section:
                assert len(figure.axes[0].get_yticks()) == count
            else:
                assert figure.axes[0].images[0].get_array().shape == (12, count * 6 - 1)


def test_an_analysis_that_doesn_t_apply_says_why():
    for section, sentence in (
        (dynamic_kernels_section, "the model has no dynamic kernels"),
        (fixed_kernels_section, "the model has no fixed kernels"),
        (depthwise_kernels_section, "the model has no depthwise kernels"),
    ):
        with pytest.raises(NotApplicableError, match=sentence):
            section(study(reader(BERT), "w1 w2"))
