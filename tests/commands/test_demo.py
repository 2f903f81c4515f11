"""`lightbert demo`: from text to a trained model, with a small text and a second of training."""

import json
import random

import pytest
from rich.console import Console

import lightbert
from extras import needs_plots
from lightbert import cli
from lightbert.commands import COMMANDS, demo, pretrain
from lightbert.commands.pretrain import TrainingReport
from lightbert.errors import InputError
from lightbert.files import locked
from lightbert.recipes import names
from lightbert.train.step import Outcome


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A text in which every word has one successor, and a second of training."""
    folder = tmp_path_factory.mktemp("demo")
    choose = random.Random(0)
    words = [first + second for first in ("ka", "lo", "mi", "nu") for second in ("ra", "se", "ti", "vo")]

    def line():
        start = choose.randrange(len(words))
        return " ".join(words[(start + 5 * step) % len(words)] for step in range(choose.randint(6, 12)))

    (folder / "text.txt").write_text("\n\n".join("\n".join(line() for _ in range(10)) for _ in range(100)))
    return demo.Config(out=folder / "run", minutes=0.02, source=str(folder / "text.txt"), device="cpu", finetune=False)


@pytest.fixture(scope="module")
def shown(config):
    return demo.run(config)


def page_of(report):
    console = Console(width=160)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


def test_the_demo_trains_a_model_that_loads(shown, config):
    assert shown.step > 0
    model = lightbert.load(config.out / "final")
    assert "rtd" in model.heads
    assert shown.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert shown.corpus.vocab == model.config.vocab


@needs_plots
def test_the_loss_curve_and_the_words_are_drawn(shown, config):
    assert (config.out / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (config.out / "words.svg").read_text(encoding="utf-8")


def test_the_json_has_the_metrics_and_the_trivial_baseline(shown):
    report = json.loads(json.dumps(shown.to_json()))
    metrics = report["metrics"]
    assert metrics["baseline_accuracy"] == pytest.approx(1 - metrics["replaced"])
    assert {"rtd_accuracy", "rtd_precision", "rtd_recall", "planted_found", "planted_guessed"} <= metrics.keys()
    for sentence in report["sentences"]:
        assert len(sentence["words"]) == len(sentence["suspicion"])
        assert sentence["words"][sentence["planted"]] != sentence["original"]


@needs_plots
def test_the_printed_report_has_metrics_suspicion_and_next_commands(shown, config):
    page = page_of(shown)
    assert f"{shown.metrics['rtd_accuracy']:.2%}" in page
    assert f"{shown.metrics['baseline_accuracy']:.2%}" in page
    assert str(config.out / "loss.png") in page.replace("\n", "")
    first = shown.sentences[0]
    for suspicion in first["suspicion"]:
        assert f"{100 * suspicion:.0f}" in page
    assert f"{first['words'][first['planted']]} replaces {first['original']}" in page
    assert "lightbert prepare" in page
    assert f"lightbert serve {config.out / 'final'}" in page.replace("\n", "")
    assert "--again" not in page


def test_a_second_run_evaluates_the_existing_model_and_names_the_option_to_retrain(shown, config):
    log = (config.out / "metrics.jsonl").read_bytes()
    second = demo.run(config)
    assert second.to_json() == {**shown.to_json(), "trained_before": True}
    assert (config.out / "metrics.jsonl").read_bytes() == log
    assert "has been trained before; --again trains it from scratch" in page_of(second)


def test_again_removes_only_files_of_the_demo(tmp_path):
    for name in ("final", "data", "checkpoints", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "mine.txt").touch()
    (tmp_path / "packages" / "bundled" / "final").mkdir(parents=True)
    (tmp_path / "packages" / "train.csv").touch()
    demo.clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "notes"]


def test_an_interrupted_demo_has_the_exit_code_of_an_interrupted_run(tmp_path, config, monkeypatch, capsys):
    monkeypatch.setattr(demo, "SOURCE", config.source)
    stopped = TrainingReport(tmp_path, Outcome(7, False, 0.0, {}))
    monkeypatch.setattr(pretrain, "run", lambda recipe, command: stopped)
    assert cli.main(["demo", "--out", str(tmp_path / "run"), "--minutes", "0.01"]) == 75
    assert "interrupted and saved at step 7" in capsys.readouterr().out


def test_a_text_file_replaces_the_documentation(config, shown):
    manifest = json.loads((config.out / "data" / "manifest.json").read_text())
    assert manifest["settings"]["sources"] == [config.source]


def test_every_next_command_names_an_existing_verb_and_recipe():
    for line, _ in demo.NEXT:
        program, verb, *arguments = line.split()
        assert program == "lightbert"
        assert verb in COMMANDS
        assert verb not in ("pretrain", "finetune") or arguments[0] in names()


def test_again_keeps_folders_of_others_and_a_demo_that_runs(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is not a prepared folder"):
        demo.clear(tmp_path)
    assert (tmp_path / "data" / "mine.txt").exists()
    with locked(tmp_path, "is training in", "wait"), pytest.raises(InputError, match="is training in"):
        demo.clear(tmp_path)
    demo.clear(tmp_path / "new")
