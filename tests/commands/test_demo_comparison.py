"""The end of the demo, with a tiny stand-in for the bundled model and a handful of sentences."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tiny_tasks import write_model

import lightbert
from extras import needs_metrics
from lightbert import bundled
from lightbert.analysis.suspicion import CorruptedSentence, Word
from lightbert.commands import demo, demo_task
from lightbert.commands.demo import DemoReport
from lightbert.commands.demo_task import Example, compare

WORDS = {"email": "good", "xml": "bad"}


def _examples():
    rows = [
        Example(f"the {word} film was a {other} .", label) for label, word in WORDS.items() for other in ("film", "a")
    ]
    return {"train": rows * 4, "dev": rows, "test": [*rows, Example("the film", "xml")]}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    write_model(folder / "bundled" / "convbert-small-en", depth=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "FOLDER", folder / "bundled")
        patch.setattr(demo_task, "read_examples", _examples)
        patch.setattr(demo_task, "_SHARED", {"batch": 4, "length": 16, "workers": 0})
        return compare(folder / "packages", write_model(folder / "tiny"), "cpu")


@needs_metrics
def test_the_classifiers_are_compared_on_the_test_split(compared):
    names = [*compared.accuracy]
    assert names[0] == "convbert-small-en, its first layer, fine-tuned"
    assert len(names) == 4
    # Both packages have as many training sentences, and the test split has one more of the second.
    assert compared.accuracy["the most frequent package"] == pytest.approx(2 / 5)
    assert compared.accuracy["naive Bayes on words, tuned"] >= 4 / 5
    assert compared.sizes == {"train": 16, "dev": 4, "test": 5}


@needs_metrics
def test_the_finetuned_model_predicts_packages(compared):
    model = lightbert.load(compared.model)
    assert model.predict(compared.sentence)["label"] in WORDS
    assert len(model.blocks) == 1
    assert model.heads["classify"].pool == "mean-max"


def _report(out: Path) -> DemoReport:
    held_out = {"replaced": 0.1, "rtd_accuracy": 0.9, "rtd_precision": 0.5, "rtd_recall": 0.5}
    sentence = CorruptedSentence((Word((5,), "one", 0.1), Word((6,), "two", 0.9)), 1, "three")
    return DemoReport(out, 1, 1, 1, 1, 1, held_out, (sentence,), trained_before=False)


def _page(report: DemoReport) -> str:
    console = Console(width=400)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


@needs_metrics
def test_the_report_prints_the_accuracies_and_the_commands_to_try_the_model(compared, tmp_path):
    page = _page(replace(_report(tmp_path), comparison=compared))
    for name, accuracy in compared.accuracy.items():
        assert name in page
        assert f"{accuracy:.1%}" in page
    assert f"lightbert serve {compared.model}" in page
    assert f"lightbert predict {compared.model} '{compared.sentence}'" in page


def test_finetuning_is_skipped_with_a_sentence_if_the_weights_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    report = demo._with_comparison(_report(tmp_path), "cpu")
    assert report.comparison is None
    assert report.skipped.startswith("fine-tuning was skipped: the weights of the bundled model 'convbert-small-en'")
    assert report.skipped in _page(report)
