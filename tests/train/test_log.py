"""metrics.jsonl, whose bytes don't depend on interruptions, TensorBoard, throughput, and the first step."""

import json
from types import SimpleNamespace

import pytest
import torch
from tiny_runs import recipe_of, train

from lightbert.errors import InputError
from lightbert.progress import Bar
from lightbert.train import log
from lightbert.train.distributed import World
from lightbert.train.log import FirstStep, Meter, MetricsFile, headline, read


@pytest.fixture
def path(tmp_path):
    """A log of four steps with an evaluation after the second."""
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, 0)
    for step in range(1, 5):
        file.write("train", step, {"loss": 1 / step})
        if step == 2:
            file.write("held-out", step, {"loss": 0.7})
    file.close()
    return path


def steps(path):
    return [(record["kind"], record["step"]) for record in map(json.loads, path.read_text().splitlines())]


def test_resuming_drops_the_lines_after_the_checkpoint_and_knows_the_evaluations_before_it(path):
    before = path.read_bytes()
    for step, kept, held_out in ((4, 5, {2: {"loss": 0.7}}), (2, 3, {2: {"loss": 0.7}}), (1, 1, {}), (0, 0, {})):
        file = MetricsFile(path, step)
        assert file.held_out == held_out
        file.close()
        assert path.read_bytes() == b"".join(before.splitlines(keepends=True)[:kept])


def test_a_line_truncated_by_a_crash_is_dropped(path):
    whole = path.read_bytes()
    for cut in range(1, 20):
        path.write_bytes(whole[:-cut])
        file = MetricsFile(path, 4)
        file.write("train", 4, {"loss": 0.25})
        file.close()
        assert path.read_bytes() == whole, cut


def test_written_lines_can_be_read_and_non_finite_numbers_become_null(path):
    file = MetricsFile(path, 4)
    file.write("held-out", 4, {"loss": 0.5})
    assert file.held_out[4] == {"loss": 0.5}
    file.write("skipped", 5, {"loss": float("nan"), "norm": float("inf"), "lr": 0.1, "examples": [1, 2]})
    file.flush()
    assert steps(path)[-1] == ("skipped", 5)
    file.close()
    numbers = {"loss": None, "norm": None, "lr": 0.1, "examples": [1, 2]}
    assert read(path, "skipped") == [{"kind": "skipped", "step": 5, **numbers}]
    with path.open("a") as damaged:
        damaged.write('{"kind": "train", "st')
    assert [record["step"] for record in read(path, "train")] == [1, 2, 3, 4]
    assert [record["step"] for record in read(path, "held-out")] == [2, 4]
    assert read(path.with_name("nothing.jsonl"), "train") == []


def test_a_damaged_line_between_whole_ones_is_an_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    line = b'{"kind": "train", "step": %d, "loss": 1.0}\n'
    for damage in (b"\xff\xfe\n", b"{\n", b"[1]\n", b'{"kind": "train"}\n', b'{"kind": 1, "step": "x"}\n'):
        path.write_bytes(line % 1 + damage + line % 2)
        with pytest.raises(InputError, match=r"line 2 of '.*metrics\.jsonl' is damaged; restore the file, or remove"):
            MetricsFile(path, 2)
        path.write_bytes(line % 1 + damage)
        MetricsFile(path, 2).close()
        assert path.read_bytes() == line % 1


def test_scalars_reach_the_event_file_of_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    file = MetricsFile(tmp_path / "metrics.jsonl", 0, tmp_path / "tensorboard")
    for step in (1, 2, 3):
        file.write("train", step, {"loss": 10.0 / step, "examples": [1, 2]})
    file.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    seen = [(event.step, round(event.value, 4)) for event in events.Scalars("train/loss")]
    assert seen == [(1, 10.0), (2, 5.0), (3, 3.3333)]
    assert events.Tags()["scalars"] == ["train/loss"]


def test_the_first_held_out_metric_is_shown_with_losses_and_accuracies():
    assert headline({"micro_f1": 0.5, "macro_f1": 0.25, "accuracy": 0.75}) == "micro_f1 0.5 accuracy 0.75"
    assert headline({"pearson": 0.5, "mse": 2.0}) == "pearson 0.5"


def test_throughput_is_averaged_without_the_first_lap_and_pauses(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: now[0]))
    meter = Meter()
    assert meter.average == 0
    now[0] += 50
    # The first lap counts towards the budget, and as long as it is the only one, towards the average.
    assert meter.lap(100) == 50
    assert meter.latest == meter.average == 2
    for tokens in (30, 50):
        now[0] += 1000
        assert meter.pause() == 1000
        now[0] += 4
        assert meter.lap(tokens) == 4
    assert meter.latest == 12.5
    assert meter.average == 10
    assert meter.lap(1) > 0


def test_one_line_per_phase_says_how_long_it_compiled(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    for device, compiles, rank, lines in (
        ("cuda", True, 0, 2),
        ("cuda", False, 0, 0),
        ("cuda", True, 1, 0),
        ("cpu", True, 0, 0),
    ):
        first = FirstStep(World(rank, 1, torch.device(device)), compiles=compiles)
        bar = Bar("training", None, "steps", 0)
        for _ in range(2):
            first.expected = True
            for _ in range(3):
                with first.timed(bar):
                    pass
        assert capsys.readouterr().err == "compiling: 0 s\n" * lines


def test_the_result_says_when_training_began(corpus, tmp_path):
    outcome = train(recipe_of(corpus, tmp_path, steps=3))
    assert outcome.start_seconds > 0
    assert json.loads((tmp_path / "result.json").read_text())["start_seconds"] == outcome.start_seconds
