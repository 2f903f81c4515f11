"""`lightbert pretrain`: from a recipe and overrides to a model folder and metrics."""

import json
import random
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

import lightbert
from extras import needs_plots
from lightbert import cli
from lightbert.commands.pretrain import TrainingReport
from lightbert.data.preparation import Settings, prepare
from lightbert.train import signals
from lightbert.train.step import Outcome

SMALL = [
    *(f"change.{key}={value}" for key, value in {"depth": 1, "narrow": 8, "width": 16, "inner": 32}.items()),
    *("steps=4", "batch=2", "length=16", "evaluate_batches=1", "workers=0", "device=cpu"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    choose = random.Random(0)
    lines = [" ".join(choose.choices(["lo", "mi", "nu", "ra", "se"], k=6)) for _ in range(200)]
    (folder / "text.txt").write_text("\n\n".join("\n".join(lines[at : at + 5]) for at in range(0, 200, 5)))
    prepare(Settings(sources=(str(folder / "text.txt"),), vocab_size=64, held_out=0.2), folder / "data", workers=1)
    return folder / "data"


def command(recipe, *overrides):
    return ["pretrain", recipe, *SMALL, *map(str, overrides)]


@needs_plots
@pytest.mark.parametrize("recipe", ["tiny-rtd", "tiny-mlm"])
def test_the_json_has_metrics_and_a_model_folder_that_loads(recipe, data, tmp_path, capsys):
    assert cli.main([*command(recipe, f"data={data}", f"out={tmp_path / 'run'}"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["finished"]
    assert report["step"] == 4
    assert report["metrics"]["loss"] > 0
    assert lightbert.load(report["model"]).tokenizer is not None
    assert (tmp_path / "run" / "loss.png").is_file()


def test_an_interrupted_run_exits_with_75_and_the_same_command_resumes_it(data, tmp_path, monkeypatch, capsys):
    @contextmanager
    def already():
        interrupted = signals.Interruption()
        interrupted.signal = 15
        yield interrupted

    line = command("tiny-rtd", f"data={data}", f"out={tmp_path / 'run'}")
    with monkeypatch.context() as patch:
        patch.setattr(signals, "catch_signals", already)
        assert cli.main(line) == signals.EXIT_CODE == 75
    assert "interrupted and saved at step" in capsys.readouterr().out
    assert not (tmp_path / "run" / "final").exists()
    assert cli.main(line) == 0
    assert "4 steps at" in capsys.readouterr().out


def test_seeds_and_a_grid_train_every_combination_and_print_means(data, tmp_path, capsys):
    out = tmp_path / "grid"
    words = command("tiny-mlm", f"data={data}", f"out={out}", "seeds=[0,1]", "grid.lr=[1e-4,1e-2]")
    assert cli.main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["finished"]
    names = [f"lr-{rate}_seed-{seed}" for rate in ("0.0001", "0.01") for seed in (0, 1)]
    assert [run["out"] for run in report["runs"]] == [str(out / "runs" / name) for name in names]
    losses = [run["metrics"]["loss"] for run in report["runs"]]
    assert len(set(losses)) == 4
    means = [report["settings"][setting]["loss"]["mean"] for setting in ("lr=0.0001", "lr=0.01")]
    assert means == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:]) / 2])
    error = report["settings"]["lr=0.01"]["loss"]["error"]
    assert error == pytest.approx(abs(losses[2] - losses[3]) / 2)
    assert json.loads((out / "runs.json").read_text()) == report
    # Finished runs are not trained again.
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert f"{means[1]:.4f} ± {error:.4f}" in printed
    assert cli.main([*words[:-2], "seeds=[1,1]"]) == 1
    assert "seeds must not contain duplicates" in capsys.readouterr().err


def test_without_matplotlib_the_run_names_the_package_to_install(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(command("tiny-mlm", f"data={data}", f"out={tmp_path / 'run'}")) == 0
    assert "pip install 'lightbert[plots]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([], "data is required; add data=FOLDER"),
        (["data=nowhere", "out=x"], "'nowhere' has no manifest.json"),
        (["data=nowhere", "out=x", "bach=8"], "unknown key 'bach'; did you mean 'batch'?"),
        (["data=.", "out=x", "model=convbert-smal"], "convbert-smal"),
        (["data=.", "out=x", "device=gpu"], "unknown device 'gpu'; use auto, cpu or cuda"),
    ],
)
def test_bad_input_prints_one_sentence_and_writes_nothing(overrides, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(command("tiny-rtd", *overrides)) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("lightbert: ")
    assert sentence in output.err
    assert output.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_printed_report_has_speed_held_out_metrics_and_the_model():
    console = Console(width=160)
    with console.capture() as captured:
        console.print(TrainingReport(Path("runs/x"), Outcome(1200, True, 34567.8, {"loss": 1.25})))
    page = captured.get()
    assert "1,200 steps at 34,568 tokens/s; held out: loss 1.2500" in page
    assert "model: runs/x/final" in page


def test_without_held_out_documents_the_report_says_how_to_get_some():
    console = Console(width=200)
    with console.capture() as captured:
        console.print(TrainingReport(Path("runs/x"), Outcome(12, True, 5.0, {})))
    assert "held out: nothing to measure on; prepare more documents (--documents line)" in captured.get()
