"""The plot of a distillation: panels, curves, colours, stages, scales."""

import sys

import pytest

from extras import needs_plots
from lightbert.analysis.picture import write
from lightbert.analysis.transfer_history import Stage, TransferHistory
from lightbert.analysis.transfer_plot import plot_transfer
from lightbert.errors import InputError

pytestmark = needs_plots


def history(layers=3, **changes):
    points = {layer: [(5, 2.0 / layer), (10, 1.0 / layer)] for layer in range(1, layers + 1)}
    held_out = {"fmt": points, "at": points}
    train = {kind: {1: [(1, 3.0), (2, 2.0)]} for kind in ("fmt", "at")}
    values = {"train": train, "held_out": held_out, "stages": [Stage("1", 1, 4), Stage("predictions", 5, 10)]}
    return TransferHistory(**values | changes)


def drawn(panel):
    """The labelled curves, which are those of held-out text."""
    return {line.get_label(): line for line in panel.lines if not line.get_label().startswith("_")}


def test_both_losses_have_a_panel_with_a_curve_per_layer():
    figure = plot_transfer(history())
    assert [panel.get_title() for panel in figure.axes] == [
        "feature maps (FMT, weighted)",
        "attention (AT, KL divergence)",
    ]
    for panel in figure.axes:
        assert [*drawn(panel)] == ["1", "2", "3"]
        assert drawn(panel)["2"].get_xydata().tolist() == [[5, 1.0], [10, 0.5]]
        assert panel.get_yscale() == "log"
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["1", "2", "3"]


def test_later_layers_are_brighter_and_training_has_the_colour_of_its_layer():
    panel = plot_transfer(history(layers=6)).axes[0]
    curves = drawn(panel)
    brightness = [sum(line.get_color()[:3]) for line in curves.values()]
    assert brightness == sorted(brightness)
    training = panel.lines[0]
    assert training.get_xydata().tolist() == [[1, 3.0], [2, 2.0]]
    assert training.get_color() == curves["1"].get_color()


def test_stages_are_labelled_above_their_middle_and_separated_by_lines():
    panel = plot_transfer(history()).axes[0]
    [above] = panel.child_axes
    assert above.get_xticks().tolist() == [2.0, 7.0]
    assert [label.get_text() for label in above.get_xticklabels()] == ["1", "predictions"]
    lines = [line.get_xdata() for line in panel.lines if line.get_linestyle() == ":"]
    assert lines == [[4, 4]]


def test_without_attention_transfer_there_is_one_panel():
    [panel] = plot_transfer(history(train={}, held_out={"fmt": {1: [(1, 2.0)]}})).axes
    assert "FMT" in panel.get_title()


@pytest.mark.parametrize(("values", "scale"), [((0.0, 0.0), "linear"), ((0.0, 0.1), "log"), ((-1e-9, 0.2), "log")])
def test_losses_of_zero_are_plotted(values, scale, tmp_path):
    points = {"at": {1: [*enumerate(values)]}}
    figure = plot_transfer(history(train={}, held_out=points))
    assert figure.axes[0].get_yscale() == scale
    write(figure, tmp_path / "transfer.png")


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")])
def test_the_extension_of_the_file_determines_the_format(ending, begins, tmp_path):
    write(plot_transfer(history()), tmp_path / f"picture.{ending}")
    assert (tmp_path / f"picture.{ending}").read_bytes().startswith(begins)


def test_an_unknown_format_raises_one_sentence(tmp_path):
    with pytest.raises(InputError, match="unknown picture format 'pgn'; did you mean 'png'"):
        write(plot_transfer(history()), tmp_path / "picture.pgn")


def test_without_matplotlib_the_error_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'lightbert\[plots\]'"):
        plot_transfer(history())
