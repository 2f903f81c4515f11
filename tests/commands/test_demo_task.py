"""The task at the end of the demo: examples, classifiers, and a comparison with a stand-in for the bundled model."""

import csv
import math
from collections import Counter
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
from lightbert.commands.demo_task import (
    PACKAGES,
    SPLITS,
    Example,
    compare,
    equal_fraction,
    read_examples,
    train_naive_bayes,
    tune_naive_bayes,
    write_examples,
)
from lightbert.data.docstrings import documented_objects

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


@pytest.fixture(scope="module")
def examples():
    return read_examples()


def test_every_package_has_examples_in_every_split(examples):
    for split, maximum in SPLITS.items():
        counts = [sum(each.label == package for each in examples[split]) for package in PACKAGES]
        assert 0 < min(counts) <= max(counts) == maximum


def test_an_object_is_in_one_split_with_all_of_its_sentences(examples):
    split_of = {each.text: split for split, rows in examples.items() for each in rows}
    assert len(split_of) == sum(map(len, examples.values()))
    objects = documented_objects("asyncio")
    uses = Counter(text for each in objects for text in each.sentences)
    for each in objects:
        # A sentence of several objects is in the split of one of them.
        assert len({split_of[text] for text in each.sentences if text in split_of and uses[text] == 1}) <= 1


def test_no_sentence_names_its_package_and_every_call_returns_the_same_examples(examples):
    assert read_examples() == examples
    for each in (each for rows in examples.values() for each in rows):
        assert each.label.rpartition(".")[2] not in each.text.lower()


def test_the_tables_contain_the_examples(tmp_path):
    rows = [Example('A "quoted", text', "email")]
    paths = write_examples({"train": rows}, tmp_path)
    with paths["train"].open(newline="") as file:
        assert [*csv.DictReader(file)] == [{"text": 'A "quoted", text', "label": "email"}]


def test_naive_bayes_predicts_by_smoothed_counts_of_words_or_pairs_of_words():
    texts, labels = ["good good film", "a film", "bad film", "bad bad"], ["pos", "pos", "neg", "neg"]
    model = train_naive_bayes(texts, labels, smoothing=0.5)
    # pos: good good film a film, with 4 words in the vocabulary; neg: bad film bad bad.
    good = model.likelihood[:, model.vocabulary["good"]]
    assert good.tolist() == pytest.approx([math.log(0.5 / 6), math.log(2.5 / 7)])
    assert model.prior.tolist() == pytest.approx([math.log(0.5)] * 2)
    more = train_naive_bayes([*texts, "good"], [*labels, "pos"])
    assert more.predict(["Good!", "bad", "zebra"]) == ["pos", "neg", "pos"]
    texts, labels, dev = ["not good but bad", "not bad but good"] * 3, ["neg", "pos"] * 3, ["not good", "not bad"]
    assert train_naive_bayes(texts, labels, smoothing=0.1, pairs=True).predict(dev) == ["neg", "pos"]
    words = train_naive_bayes(texts, labels, smoothing=0.1)
    assert words.predict(dev[:1]) == words.predict(dev[1:])


def test_tuning_returns_the_classifier_with_the_best_dev_accuracy():
    dev, answers = ["not good", "not bad"], ["neg", "pos"]
    model = tune_naive_bayes(["not good but bad", "not bad but good"], ["neg", "pos"], dev, answers)
    assert model.pairs
    assert equal_fraction(model.predict(dev), answers) == 1.0
    assert equal_fraction(["a", "b", "a", "a"], ["a", "b", "b", "b"]) == 0.5
