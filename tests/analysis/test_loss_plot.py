"""The loss curve of a run, also of one whose log is damaged."""

import json

import pytest

from extras import needs_plots
from lightbert.analysis.loss_plot import draw_losses
from lightbert.commands.training_report import draw_curves
from lightbert.errors import InputError

pytestmark = needs_plots


def write_log(folder, *lines):
    path = folder / "metrics.jsonl"
    path.write_text("".join(lines))
    return path


def record(step, **values):
    return json.dumps({"kind": "train", "step": step, **values}) + "\n"


def test_the_curve_of_a_run_in_progress_is_drawn(tmp_path):
    log = write_log(tmp_path, record(1, loss=2.0), record(2, loss=None), record(3, loss="x"), '{"kind": "tr')
    draw_losses(log, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{\n", "line 2 of '{}' is not valid JSON; remove it"),
        ("[]\n", "line 2 of '{}' is not a JSON object with kind and step; remove it"),
        ('{"kind": "train"}\n', "line 2 of '{}' is not a JSON object with kind and step; remove it"),
    ],
)
def test_a_damaged_log_is_one_sentence_and_does_not_stop_the_report(tmp_path, capsys, line, sentence):
    log = write_log(tmp_path, record(1, loss=2.0), line)
    with pytest.raises(InputError) as error:
        draw_losses(log, tmp_path / "loss.png")
    assert str(error.value) == sentence.replace("{}", str(log))
    assert draw_curves(tmp_path) is False
    assert "the loss curve was not drawn: line 2" in capsys.readouterr().err
