"""The layer losses and stages in the log of a distillation."""

import json

import pytest

from lightbert.analysis import transfer_history
from lightbert.analysis.transfer_history import Stage, read_history
from lightbert.errors import InputError


def log(path, *records):
    """Write records such as ("train", {"fmt_1": 2.0}); held-out ones belong to the step before them."""
    step = 0
    with path.open("w") as file:
        for kind, values in records:
            step += kind != "held-out"
            file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
    return path


def test_every_layer_has_its_points_in_training_and_on_held_out_text(tmp_path):
    first, second = {"fmt": 3.0, "fmt_1": 3.0, "at_1": 0.5}, {"fmt_12": 2.0, "at_12": 0.4}
    held_out = {"fmt_1": 2.5, "fmt_12": 9.0, "at_1": 0.1, "at_12": 0.2, "loss": 7.0}
    history = read_history(log(tmp_path / "log", ("train", first), ("train", second), ("held-out", held_out)))
    assert history.train == {"fmt": {1: [(1, 3.0)], 12: [(2, 2.0)]}, "at": {1: [(1, 0.5)], 12: [(2, 0.4)]}}
    assert history.held_out == {"fmt": {1: [(2, 2.5)], 12: [(2, 9.0)]}, "at": {1: [(2, 0.1)], 12: [(2, 0.2)]}}
    assert history.layers == [1, 12]
    assert history.latest == {"fmt_1": 2.5, "fmt_12": 9.0, "at_1": 0.1, "at_12": 0.2}


def test_stages_are_separated_by_their_losses(tmp_path):
    one, two, both, words = {"fmt_1": 1.0}, {"fmt_2": 1.0}, {"fmt_1": 1.0, "fmt_2": 1.0}, {"mlm_loss": 1.0}
    steps = [one, one, two, both, both | words, words, words]
    history = read_history(log(tmp_path / "log", *(("train", values) for values in steps)))
    assert history.stages == [
        Stage("1", 1, 2),
        Stage("2", 3, 3),
        Stage("1–2", 4, 4),
        Stage("1–2 + predictions", 5, 5),
        Stage("predictions", 6, 7),
    ]


def test_without_held_out_text_the_latest_losses_are_those_of_training(tmp_path):
    history = read_history(log(tmp_path / "log", ("train", {"fmt_1": 2.0}), ("train", {"fmt_1": 1.0})))
    assert history.latest == {"fmt_1": 1.0}


def test_skipped_steps_and_non_finite_losses_are_not_plotted_but_belong_to_their_stage(tmp_path):
    steps = [("train", {"fmt_1": 2.0}), ("skipped", {"fmt_1": 9.0}), ("train", {"fmt_1": None})]
    history = read_history(log(tmp_path / "log", *steps))
    assert history.train == {"fmt": {1: [(1, 2.0)]}}
    assert history.stages == [Stage("1", 1, 3)]


def test_a_long_run_is_subsampled(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer_history, "_TRAINING_POINTS", 10)
    steps = [("train", {"fmt_1": float(step)}) for step in range(100)]
    history = read_history(log(tmp_path / "log", *steps, ("held-out", {"fmt_1": 5.0})))
    assert [step for step, _ in history.train["fmt"][1]] == [*range(1, 101, 11)]
    assert history.held_out == {"fmt": {1: [(100, 5.0)]}}
    assert history.stages == [Stage("1", 1, 100)]


def test_the_log_of_a_run_in_progress_is_read_up_to_its_last_complete_line(tmp_path):
    path = log(tmp_path / "log", ("train", {"fmt_1": 2.0}))
    with path.open("a") as file:
        file.write('{"kind": "train", "st')
    assert read_history(path).train == {"fmt": {1: [(1, 2.0)]}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "give the folder of a run, the out= of `lightbert distill`"),
        ("", "has no layer losses; give a run of `lightbert distill` with strategy=akt, jkt or pkt"),
        ('{"kind": "train", "step": 1, "mlm_loss": 2.0}\n', "has no layer losses"),
        ('{"kind": "train", "step": 1, "fmt_1": 2.0}\n{"kind"\n', "line 2 of .* is not valid JSON"),
        ("[" * 100_000 + "\n", "line 1 of .* is not valid JSON"),
        ("[]\n", "line 1 of .* is not a JSON object"),
    ],
)
def test_a_log_without_transfer_raises_one_sentence(content, sentence, tmp_path):
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(InputError, match=sentence):
        read_history(tmp_path / "metrics.jsonl")
