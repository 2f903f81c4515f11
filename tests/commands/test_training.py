"""`lightbert pretrain` and `lightbert distill`: from a recipe and overrides to a model folder and metrics."""

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
from lightbert.models import folder
from lightbert.models.mobilebert import MobileBert
from lightbert.train import signals
from lightbert.train.step import Outcome

SIZES = {"narrow": 8, "width": 16, "block_width": 8, "depth": 2, "n_heads": 2, "inner": 16}
CONVBERT = {"depth": 1, "narrow": 8, "width": 16, "inner": 32}
SMALL = ("batch=2", "length=16", "evaluate_batches=1", "workers=0", "device=cpu")


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


def pretrain(recipe, *overrides):
    return [
        "pretrain",
        recipe,
        *(f"change.{key}={value}" for key, value in CONVBERT.items()),
        "steps=4",
        *SMALL,
        *overrides,
    ]


def distill(*overrides):
    sizes = (f"change.{key}={value}" for key, value in SIZES.items())
    return ["distill", "tiny-distill", *sizes, "transfer_steps=2", "steps=2", *SMALL, *overrides]


@needs_plots
@pytest.mark.parametrize(
    ("recipe", "metrics"),
    [
        ("tiny-rtd", {"loss"}),
        ("tiny-mlm", {"loss"}),
        ("tiny-distill", {"loss", "mlm_loss", "kd_loss", "fmt", "at", "fmt_2"}),
    ],
)
def test_the_json_has_metrics_and_a_model_folder_that_loads(recipe, metrics, data, tmp_path, capsys):
    places = (f"data={data}", f"out={tmp_path / 'run'}")
    distils = recipe == "tiny-distill"
    line = distill(f"teacher={data.parent / 'teacher'}", *places) if distils else pretrain(recipe, *places)
    assert cli.main([*line, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["finished"]
    assert report["step"] == 4
    assert metrics <= report["metrics"].keys()
    assert lightbert.load(report["model"]).tokenizer is not None
    assert (tmp_path / "run" / "loss.png").is_file()
    assert (tmp_path / "run" / "transfer.png").is_file() == distils


@needs_plots
def test_a_run_without_layer_transfer_has_no_transfer_plot(data, tmp_path):
    line = distill(f"teacher={data.parent / 'teacher'}", f"data={data}", f"out={tmp_path / 'run'}", "strategy=pd")
    assert cli.main(line) == 0
    assert (tmp_path / "run" / "loss.png").is_file()
    assert not (tmp_path / "run" / "transfer.png").exists()


@pytest.mark.parametrize("verb", ["pretrain", "distill"])
def test_an_interrupted_run_exits_with_75_and_the_same_command_resumes_it(verb, data, tmp_path, monkeypatch, capsys):
    @contextmanager
    def already():
        interrupted = signals.Interruption()
        interrupted.signal = 15
        yield interrupted

    places = (f"data={data}", f"out={tmp_path / 'run'}")
    teacher = f"teacher={data.parent / 'teacher'}"
    line = pretrain("tiny-rtd", *places) if verb == "pretrain" else distill(teacher, *places)
    with monkeypatch.context() as patch:
        patch.setattr(signals, "catch_signals", already)
        assert cli.main(line) == signals.EXIT_CODE == 75
    assert "interrupted and saved at step" in capsys.readouterr().out
    assert not (tmp_path / "run" / "final").exists()
    assert cli.main(line) == 0
    assert "4 steps at" in capsys.readouterr().out


def test_seeds_and_a_grid_train_every_combination_and_print_means(data, tmp_path, capsys):
    out = tmp_path / "grid"
    words = pretrain("tiny-mlm", f"data={data}", f"out={out}", "seeds=[0,1]", "grid.lr=[1e-4,1e-2]")
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
    assert cli.main(pretrain("tiny-mlm", f"data={data}", f"out={tmp_path / 'run'}")) == 0
    assert "pip install 'lightbert[plots]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "overrides", "sentence"),
    [
        ("pretrain", "", "data is required; add data=FOLDER"),
        ("pretrain", "data=nowhere out=x", "'nowhere' has no manifest.json"),
        ("pretrain", "data=nowhere out=x bach=8", "unknown key 'bach'; did you mean 'batch'?"),
        ("pretrain", "data=. out=x model=convbert-smal", "convbert-smal"),
        ("pretrain", "data=. out=x device=gpu", "unknown device 'gpu'; use auto, cpu or cuda"),
        ("distill", "data=DATA out=x", "strategy 'pkt' requires a teacher; add teacher=PATH"),
        ("distill", "data=DATA out=x teacher=no/where", "model folder 'no/where' not found"),
        ("distill", "data=DATA out=x teacher=ib-bert-nano", "'ib-bert-nano' is a preset without weights"),
        ("distill", "data=DATA out=x teacher=TEACHER strategy=ptk", "unknown strategy 'ptk'; did you mean 'pkt'?"),
        ("distill", "data=DATA out=x teacher=TEACHER transfer.atention=0", "did you mean 'transfer.attention'?"),
        ("distill", "data=DATA out=x teacher=TEACHER length=64", "length must be <= 32, the positions of teacher"),
        ("distill", "data=DATA out=x teacher=TEACHER compile=whole", "use compile=blocks"),
        ("distill", "data=DATA out=x teacher=TEACHER transfer_steps=0", "give at least one step per layer"),
    ],
)
def test_bad_input_prints_one_sentence_and_writes_nothing(
    verb, overrides, sentence, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = overrides.replace("TEACHER", str(data.parent / "teacher")).replace("DATA", str(data)).split()
    assert cli.main(pretrain("tiny-rtd", *words) if verb == "pretrain" else distill(*words)) == 1
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
    line = distill(f"teacher={data.parent / teacher}", f"data={data}", f"out={tmp_path / 'run'}")
    assert cli.main(line) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("outcome", "lines"),
    [
        (
            Outcome(1200, True, 34567.8, {"loss": 1.25, "fmt": 2.0, "fmt_1": 2.0, "fmt_24": 2.0}),
            ["1,200 steps at 34,568 tokens/s; held out: loss 1.2500, fmt 2.0000\n", "model: runs/x/final"],
        ),
        (
            Outcome(12, True, 5.0, {}),
            ["held out: nothing to measure on; prepare more documents (--documents line)"],
        ),
    ],
)
def test_the_printed_report_has_speed_the_means_of_held_out_metrics_and_the_model(outcome, lines):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(TrainingReport(Path("runs/x"), outcome))
    assert all(line in captured.get() for line in lines)
