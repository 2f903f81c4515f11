"""The task at the end of the demo: examples, classifiers, and a comparison with a stand-in for the bundled model."""

import csv
import json
from collections import Counter

import pytest
from rich.console import Console
from tiny_tasks import write_model

import lightbert
from extras import needs_metrics
from lightbert import bundled
from lightbert.commands import demo, demo_task
from lightbert.commands.demo_task import PACKAGES, SPLITS, compare, read_examples, write_examples
from lightbert.data.docstrings import documented_objects
from lightbert.tasks.example import Example

WORDS = {"email": "good", "xml": "bad"}


def _examples():
    rows = [
        Example(f"the {word} film was a {other} .", label=label)
        for label, word in WORDS.items()
        for other in ("film", "a")
    ]
    return {"train": rows * 4, "dev": rows, "test": [*rows, Example("the film", label="xml")]}


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
    assert names[0] == "convbert-small-en, its vectors and words"
    assert len(names) == 4
    # Both packages have as many training sentences, and the test split has one more of the second.
    assert compared.accuracy["the most frequent package"] == pytest.approx(2 / 5)
    assert compared.accuracy["a linear model of words"] >= 4 / 5
    assert compared.sizes == {"train": 16, "dev": 4, "test": 5}


@needs_metrics
def test_the_finetuned_model_predicts_packages(compared):
    model = lightbert.load(compared.model)
    assert model.predict(compared.sentence)["label"] in WORDS
    assert json.loads((compared.model.parent / "recipe.json").read_text())["method"] == "both"


@needs_metrics
def test_the_report_has_the_accuracies_and_the_commands_to_try_the_model(compared, tmp_path):
    console = Console(width=400)
    with console.capture() as captured:
        console.print(compared, demo._next(tmp_path, compared))
    page = captured.get()
    for name, accuracy in compared.accuracy.items():
        assert name in page
        assert f"{accuracy:.1%}" in page
    assert f"lightbert serve {compared.model}" in page
    assert f"lightbert predict {compared.model} '{compared.sentence}'" in page


def test_finetuning_is_skipped_with_a_sentence_if_the_weights_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    sentence = demo._compare(tmp_path, "cpu")
    assert sentence.startswith("fine-tuning was skipped: the weights of the bundled model 'convbert-small-en'")


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
    rows = [Example('A "quoted", text', label="email")]
    paths = write_examples({"train": rows}, tmp_path)
    with paths["train"].open(newline="") as file:
        assert [*csv.DictReader(file)] == [{"text": 'A "quoted", text', "label": "email"}]
