"""`lightbert distill`: from a teacher, a recipe and overrides to a model folder and metrics."""

import json
import random
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

import lightbert
from extras import needs_plots
from lightbert import cli
from lightbert.commands.pretrain import TrainingReport
from lightbert.data.preparation import Settings, prepare
from lightbert.models import folder
from lightbert.models.mobilebert import MobileBert
from lightbert.train import signals
from lightbert.train.step import Outcome

SIZES = {"narrow": 8, "width": 16, "block_width": 8, "depth": 2, "n_heads": 2, "inner": 16}
SMALL = [
    *(f"change.{key}={value}" for key, value in SIZES.items()),
    *("transfer_steps=2", "steps=2", "batch=2", "length=16", "evaluate_batches=1", "workers=0", "device=cpu"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    where = tmp_path_factory.mktemp("text")
    choose = random.Random(0)
    lines = [" ".join(choose.choices(["lo", "mi", "nu", "ra", "se"], k=6)) for _ in range(200)]
    (where / "text.txt").write_text("\n\n".join("\n".join(lines[at : at + 5]) for at in range(0, 200, 5)))
    prepared = prepare(Settings(sources=(str(where / "text.txt"),), vocab_size=64, held_out=0.2), where / "data", 1)
    wide = SIZES | {"block_width": 24, "mixer_input": "wide", "norm": "layer"}
    for name, changes in {
        "teacher": {},
        "deep": {"depth": 3},
        "broad": {"width": 24},
        "headed": {"n_heads": 4},
        "foreign": {"vocab": 99},
    }.items():
        config = MobileBert(**{"vocab": prepared.manifest.vocab, "positions": 32} | wide | changes)
        folder.save(lightbert.build(config, heads={"mlm": {}, "nsp": {}}), where / name)
    folder.save(lightbert.build(config), where / "headless")
    return where / "data"


def command(*overrides):
    return ["distill", "tiny-distill", *SMALL, *map(str, overrides)]


@needs_plots
def test_the_json_has_metrics_and_a_model_folder_that_loads(data, tmp_path, capsys):
    line = command(f"teacher={data.parent / 'teacher'}", f"data={data}", f"out={tmp_path / 'run'}")
    assert cli.main([*line, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["finished"]
    assert report["step"] == 4
    assert {"loss", "mlm_loss", "kd_loss", "fmt", "at", "fmt_2"} <= report["metrics"].keys()
    assert lightbert.load(report["model"]).tokenizer is not None
    assert (tmp_path / "run" / "loss.png").is_file()
    assert (tmp_path / "run" / "transfer.png").is_file()


@needs_plots
def test_a_run_without_layer_transfer_has_no_transfer_plot(data, tmp_path):
    line = command(f"teacher={data.parent / 'teacher'}", f"data={data}", f"out={tmp_path / 'run'}", "strategy=pd")
    assert cli.main(line) == 0
    assert (tmp_path / "run" / "loss.png").is_file()
    assert not (tmp_path / "run" / "transfer.png").exists()


def test_an_interrupted_run_exits_with_75_and_the_same_command_resumes_it(data, tmp_path, monkeypatch, capsys):
    @contextmanager
    def already():
        interrupted = signals.Interruption()
        interrupted.signal = 15
        yield interrupted

    line = command(f"teacher={data.parent / 'teacher'}", f"data={data}", f"out={tmp_path / 'run'}")
    with monkeypatch.context() as patch:
        patch.setattr(signals, "catch_signals", already)
        assert cli.main(line) == signals.EXIT_CODE == 75
    assert "interrupted and saved at step" in capsys.readouterr().out
    assert not (tmp_path / "run" / "final").exists()
    assert cli.main(line) == 0
    assert "4 steps at" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["teacher=TEACHER", "out=x"], "data is required; add data=FOLDER"),
        (["data=DATA", "out=x"], "strategy 'pkt' requires a teacher; add teacher=PATH"),
        (["data=DATA", "out=x", "teacher=no/where"], "model folder 'no/where' not found"),
        (["data=DATA", "out=x", "teacher=ib-bert-nano"], "'ib-bert-nano' is a preset without weights"),
        (["data=DATA", "out=x", "teacher=TEACHER", "strategy=ptk"], "unknown strategy 'ptk'; did you mean 'pkt'?"),
        (["data=DATA", "out=x", "teacher=TEACHER", "transfer.atention=0"], "did you mean 'transfer.attention'?"),
        (["data=DATA", "out=x", "teacher=TEACHER", "length=64"], "length must be <= 32, the positions of teacher"),
        (["data=DATA", "out=x", "teacher=TEACHER", "compile=whole"], "use compile=blocks"),
        (["data=DATA", "out=x", "teacher=TEACHER", "transfer_steps=0"], "give at least one step per layer"),
    ],
)
def test_bad_input_prints_one_sentence_and_writes_nothing(overrides, sentence, data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    places = {"TEACHER": str(data.parent / "teacher"), "DATA": str(data)}
    for name, place in places.items():
        overrides = [each.replace(name, place) for each in overrides]
    assert cli.main(command(*overrides)) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("lightbert: ")
    assert sentence in output.err
    assert output.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("teacher", "sentence"),
    [
        ("deep", "must have the same number of layers, got 3 and 2"),
        ("broad", "must have the same width, got 24 and 16"),
        ("headed", "got 4 for the teacher and 2 for the student"),
        ("foreign", "must have the same vocabulary, got 99 and"),
        ("headless", "the teacher"),
    ],
)
def test_an_incompatible_teacher_is_one_sentence(teacher, sentence, data, tmp_path, capsys):
    line = command(f"teacher={data.parent / teacher}", f"data={data}", f"out={tmp_path / 'run'}")
    assert cli.main(line) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_the_printed_report_has_the_means_and_not_every_layer():
    console = Console(width=160)
    held_out = {"loss": 1.25, "fmt": 2.0, "fmt_1": 2.0, "fmt_24": 2.0}
    with console.capture() as captured:
        console.print(TrainingReport(Path("runs/x"), Outcome(1200, True, 34567.8, held_out)))
    assert "held out: loss 1.2500, fmt 2.0000\n" in captured.get()
