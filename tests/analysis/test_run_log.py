"""The log of a run: the loss curve, the layer losses and stages of a distillation and their plot, damaged logs."""

import json
import sys

import pytest

from extras import needs_plots
from lightbert.analysis import run_log
from lightbert.analysis.figure import write
from lightbert.analysis.run_log import Stage, TransferHistory, draw_losses, plot_transfer, read_history
from lightbert.commands.pretrain import draw_curves
from lightbert.errors import InputError


def log(path, *records, end=""):
    """Write records such as ("train", {"fmt_1": 2.0}); held-out ones belong to the step before them."""
    step = 0
    with path.open("w") as file:
        for kind, values in records:
            step += kind != "held-out"
            file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        file.write(end)
    return path


@pytest.fixture
def metrics(tmp_path):
    return tmp_path / "metrics.jsonl"


@needs_plots
def test_the_curve_of_a_run_in_progress_is_drawn(metrics, tmp_path):
    records = [("train", {"loss": loss}) for loss in (2.0, None, "x")]
    draw_losses(log(metrics, *records, end='{"kind": "tr'), tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000


@needs_plots
def test_a_damaged_log_is_one_sentence_and_does_not_stop_the_report(metrics, tmp_path, capsys):
    for line, sentence in (
        ("{\n", f"line 2 of '{metrics}' is not valid JSON; remove it"),
        ("[]\n", f"line 2 of '{metrics}' is not a JSON object with kind and step; remove it"),
        ('{"kind": "train"}\n', f"line 2 of '{metrics}' is not a JSON object with kind and step; remove it"),
    ):
        log(metrics, ("train", {"loss": 2.0}), end=line)
        with pytest.raises(InputError) as error:
            draw_losses(metrics, tmp_path / "loss.png")
        assert str(error.value) == sentence
        assert draw_curves(tmp_path) is False
        assert "the loss curve was not drawn: line 2" in capsys.readouterr().err


def test_every_layer_has_its_points_in_training_and_on_held_out_text(metrics):
    first, second = {"fmt": 3.0, "fmt_1": 3.0, "at_1": 0.5}, {"fmt_12": 2.0, "at_12": 0.4}
    held_out = {"fmt_1": 2.5, "fmt_12": 9.0, "at_1": 0.1, "at_12": 0.2, "loss": 7.0}
    log(metrics, ("train", first), ("train", second), ("held-out", held_out), end='{"kind": "train", "st')
    history = read_history(metrics)
    assert history.train == {"fmt": {1: [(1, 3.0)], 12: [(2, 2.0)]}, "at": {1: [(1, 0.5)], 12: [(2, 0.4)]}}
    assert history.held_out == {"fmt": {1: [(2, 2.5)], 12: [(2, 9.0)]}, "at": {1: [(2, 0.1)], 12: [(2, 0.2)]}}
    assert history.layers == [1, 12]
    assert history.latest == {"fmt_1": 2.5, "fmt_12": 9.0, "at_1": 0.1, "at_12": 0.2}


def test_stages_are_separated_by_their_losses(metrics):
    one, two, both, words = {"fmt_1": 1.0}, {"fmt_2": 1.0}, {"fmt_1": 1.0, "fmt_2": 1.0}, {"mlm_loss": 1.0}
    steps = [one, one, two, both, both | words, words, words]
    assert read_history(log(metrics, *(("train", values) for values in steps))).stages == [
        Stage("1", 1, 2),
        Stage("2", 3, 3),
        Stage("1–2", 4, 4),
        Stage("1–2 + predictions", 5, 5),
        Stage("predictions", 6, 7),
    ]


def test_skipped_steps_and_non_finite_losses_are_not_plotted_but_belong_to_their_stage(metrics):
    steps = [("train", {"fmt_1": 2.0}), ("skipped", {"fmt_1": 9.0}), ("train", {"fmt_1": None})]
    history = read_history(log(metrics, *steps))
    assert history.train == {"fmt": {1: [(1, 2.0)]}}
    assert history.stages == [Stage("1", 1, 3)]
    # Without held-out text the latest losses are those of training.
    assert history.latest == {"fmt_1": 2.0}


def test_a_long_run_is_subsampled(metrics, monkeypatch):
    monkeypatch.setattr(run_log, "_TRAINING_POINTS", 10)
    steps = [("train", {"fmt_1": float(step)}) for step in range(100)]
    history = read_history(log(metrics, *steps, ("held-out", {"fmt_1": 5.0})))
    assert [step for step, _ in history.train["fmt"][1]] == [*range(1, 101, 11)]
    assert history.held_out == {"fmt": {1: [(100, 5.0)]}}
    assert history.stages == [Stage("1", 1, 100)]


def test_a_log_without_transfer_raises_one_sentence(metrics):
    with pytest.raises(InputError, match="give the folder of a run, the out= of `lightbert distill`"):
        read_history(metrics)
    for content, sentence in (
        ("", "has no layer losses; give a run of `lightbert distill` with strategy=akt, jkt or pkt"),
        ('{"kind": "train", "step": 1, "mlm_loss": 2.0}\n', "has no layer losses"),
        ('{"kind": "train", "step": 1, "fmt_1": 2.0}\n{"kind"\n', "line 2 of .* is not valid JSON"),
        ("[" * 100_000 + "\n", "line 1 of .* is not valid JSON"),
    ):
        metrics.write_text(content)
        with pytest.raises(InputError, match=sentence):
            read_history(metrics)


def transfer(layers=3, **changes):
    points = {layer: [(5, 2.0 / layer), (10, 1.0 / layer)] for layer in range(1, layers + 1)}
    train = {kind: {1: [(1, 3.0), (2, 2.0)]} for kind in ("fmt", "at")}
    stages = [Stage("1", 1, 4), Stage("predictions", 5, 10)]
    return TransferHistory(**{"train": train, "held_out": {"fmt": points, "at": points}, "stages": stages} | changes)


def held_out_curves(panel):
    """The labelled curves, which are those of held-out text."""
    return {line.get_label(): line for line in panel.lines if not line.get_label().startswith("_")}


@needs_plots
def test_both_losses_have_a_panel_with_a_curve_per_layer():
    figure = plot_transfer(transfer(layers=6))
    titles = ["feature maps (FMT, weighted)", "attention (AT, KL divergence)"]
    layers = ["1", "2", "3", "4", "5", "6"]
    assert [panel.get_title() for panel in figure.axes] == titles
    for panel in figure.axes:
        curves = held_out_curves(panel)
        assert [*curves] == layers
        assert curves["2"].get_xydata().tolist() == [[5, 1.0], [10, 0.5]]
        assert panel.get_yscale() == "log"
        # Later layers are brighter, and training has the colour of its layer.
        brightness = [sum(line.get_color()[:3]) for line in curves.values()]
        assert brightness == sorted(brightness)
        assert panel.lines[0].get_xydata().tolist() == [[1, 3.0], [2, 2.0]]
        assert panel.lines[0].get_color() == curves["1"].get_color()
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == layers
    # Without attention transfer there is one panel.
    [panel] = plot_transfer(transfer(train={}, held_out={"fmt": {1: [(1, 2.0)]}})).axes
    assert panel.get_title() == titles[0]


@needs_plots
def test_stages_are_labelled_above_their_middle_and_separated_by_lines():
    panel = plot_transfer(transfer()).axes[0]
    [above] = panel.child_axes
    assert above.get_xticks().tolist() == [2.0, 7.0]
    assert [label.get_text() for label in above.get_xticklabels()] == ["1", "predictions"]
    assert [line.get_xdata() for line in panel.lines if line.get_linestyle() == ":"] == [[4, 4]]


@needs_plots
def test_losses_of_zero_are_plotted(tmp_path):
    for values, scale in (((0.0, 0.0), "linear"), ((0.0, 0.1), "log"), ((-1e-9, 0.2), "log")):
        figure = plot_transfer(transfer(train={}, held_out={"at": {1: [*enumerate(values)]}}))
        assert figure.axes[0].get_yscale() == scale
        write(figure, tmp_path / "transfer.png")


@needs_plots
def test_the_extension_of_the_file_determines_the_format(tmp_path):
    figure = plot_transfer(transfer())
    for ending, content in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")):
        write(figure, tmp_path / f"picture.{ending}")
        assert (tmp_path / f"picture.{ending}").read_bytes().startswith(content)
    with pytest.raises(InputError, match="unknown picture format 'pgn'; did you mean 'png'"):
        write(figure, tmp_path / "picture.pgn")


def test_without_matplotlib_the_error_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'lightbert\[plots\]'"):
        plot_transfer(transfer())
