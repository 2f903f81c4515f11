"""The task of the demo: balanced, the same on every call, without overlap between the splits."""

import csv
from collections import Counter

import pytest

from lightbert.commands.demo_task import PACKAGES, SPLITS, Example, read_examples, write_examples
from lightbert.data.docstrings import documented_objects


@pytest.fixture(scope="module")
def examples():
    return read_examples()


def test_every_package_has_examples_in_every_split(examples):
    for split, most in SPLITS.items():
        counts = [sum(each.label == package for each in examples[split]) for package in PACKAGES]
        assert 0 < min(counts) <= max(counts) == most


def test_an_object_is_in_one_split_with_all_of_its_sentences(examples):
    split_of = {each.text: split for split, rows in examples.items() for each in rows}
    assert len(split_of) == sum(map(len, examples.values()))
    objects = documented_objects("asyncio")
    uses = Counter(text for each in objects for text in each.sentences)
    for each in objects:
        # A sentence of several objects is in the split of one of them.
        assert len({split_of[text] for text in each.sentences if text in split_of and uses[text] == 1}) <= 1


def test_no_sentence_names_its_package(examples):
    for each in (each for rows in examples.values() for each in rows):
        assert each.label.rpartition(".")[2] not in each.text.lower()


def test_the_examples_are_the_same_on_every_call(examples):
    assert read_examples() == examples


def test_the_tables_contain_the_examples(tmp_path):
    rows = [Example('A "quoted", text', "email")]
    paths = write_examples({"train": rows}, tmp_path)
    with paths["train"].open(newline="") as file:
        assert [*csv.DictReader(file)] == [{"text": 'A "quoted", text', "label": "email"}]
