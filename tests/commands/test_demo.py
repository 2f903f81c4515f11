"""`lightbert demo`: from text to a trained model, on little text and in a second."""

import json
import random
from dataclasses import replace

import pytest
from rich.console import Console

import lightbert
from lightbert import cli
from lightbert.commands import COMMANDS, demo, demonstration, pretrain
from lightbert.commands.trained import Trained
from lightbert.recipes import names
from lightbert.train.run import Outcome


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Text in which every word has one successor, and a second of training."""
    folder = tmp_path_factory.mktemp("demo")
    choose = random.Random(0)
    words = [first + second for first in ("ka", "lo", "mi", "nu") for second in ("ra", "se", "ti", "vo")]

    def line():
        start = choose.randrange(len(words))
        return " ".join(words[(start + 5 * step) % len(words)] for step in range(choose.randint(6, 12)))

    (folder / "text.txt").write_text("\n\n".join("\n".join(line() for _ in range(10)) for _ in range(100)))
    return demo.Config(out=folder / "run", minutes=0.02, source=str(folder / "text.txt"), device="cpu")


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
    assert shown.vocab == model.config.vocab


def test_the_loss_curve_is_a_picture(shown, config):
    assert (config.out / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_machine_reads_the_numbers_beside_the_trivial_baseline(shown):
    report = json.loads(json.dumps(shown.to_json()))
    metrics = report["metrics"]
    assert metrics["baseline_accuracy"] == pytest.approx(1 - metrics["replaced"])
    assert {"rtd_accuracy", "rtd_precision", "rtd_recall", "planted_found", "planted_guessed"} <= metrics.keys()
    for sentence in report["sentences"]:
        assert len(sentence["words"]) == len(sentence["suspicion"])
        assert sentence["words"][sentence["planted"]] != sentence["original"]


def test_a_person_reads_numbers_suspicion_and_what_to_run_next(shown, config):
    page = page_of(shown)
    assert f"{shown.held_out['rtd_accuracy']:.2%}" in page
    assert f"{shown.baseline:.2%}" in page
    assert str(config.out / "loss.png") in page.replace("\n", "")
    first = shown.sentences[0]
    for word in first.words:
        assert f"{100 * word.suspicion:.0f}" in page
    assert f"{first.words[first.place].text} stands for {first.original}" in page
    assert "lightbert prepare" in page
    assert "--again" not in page


def test_the_second_time_it_shows_what_is_there_and_says_how_to_begin_anew(shown, config):
    log = (config.out / "metrics.jsonl").read_bytes()
    second = demo.run(config)
    assert second == replace(shown, trained_before=True)
    assert (config.out / "metrics.jsonl").read_bytes() == log
    assert "was trained before; --again trains it anew" in page_of(second)


def test_again_removes_what_the_demo_wrote_and_nothing_else(tmp_path):
    for name in ("final", "data", "checkpoints", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "mine.txt").touch()
    demo.clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "notes"]


def test_an_interrupted_demo_exits_with_the_code_of_an_interrupted_run(tmp_path, config, monkeypatch, capsys):
    monkeypatch.setattr(demo, "SOURCE", config.source)
    monkeypatch.setattr(pretrain, "run", lambda recipe: Trained(tmp_path, Outcome(7, False, 0.0, {})))
    assert cli.main(["demo", "--out", str(tmp_path / "run"), "--minutes", "0.01"]) == 75
    assert "interrupted and saved at step 7" in capsys.readouterr().out


def test_a_file_of_text_is_read_instead_of_the_documentation(config, shown):
    manifest = json.loads((config.out / "data" / "manifest.json").read_text())
    assert manifest["settings"]["sources"] == [config.source]


def test_every_next_step_names_a_verb_and_a_recipe_that_exist():
    for line, _ in demonstration.NEXT:
        program, verb, *arguments = line.split()
        assert program == "lightbert"
        assert verb in COMMANDS
        assert verb != "pretrain" or arguments[0] in names()
