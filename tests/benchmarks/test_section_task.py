"""The task of sections, read from a package of many small functions."""

import csv
from collections import Counter
from itertools import combinations

import pytest

from benchmarks.adaptation_runs import read_task, write_task
from lightbert.data.docstrings import DESCRIPTION

FUNCTION = '''
def f{number}():
    """Compute the value with the number {number}.

    Parameters
    ----------
    x : float
        The argument of the function number {number}.
        A sentence that all of the functions share.

    Returns
    -------
    float
        The value of the function number {number}.
    """
'''
SIZES = {"train": 4, "dev": 2, "test": 6}


@pytest.fixture
def task(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "many"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("".join(FUNCTION.format(number=number) for number in range(100)))
    monkeypatch.syspath_prepend(str(package.parent))
    return read_task(("many",), SIZES)


def test_every_split_has_so_many_sentences_of_each_section(task):
    for split, size in SIZES.items():
        sections = Counter(section for _, section in task.examples[split])
        assert sections == dict.fromkeys([DESCRIPTION, "parameters", "returns"], size)


def test_no_object_is_in_two_splits_or_in_the_text(task):
    numbers = [{sentence.split()[-1] for sentence, _ in rows} for rows in task.examples.values()]
    numbers.append({document[0].split()[-1] for document in task.documents})
    assert all(not one & other for one, other in combinations(numbers, 2))


def test_a_sentence_of_several_splits_is_left_out(task):
    sentences = [sentence for rows in task.examples.values() for sentence, _ in rows]
    assert len(sentences) == len(set(sentences))
    assert not any("share" in sentence for sentence in sentences)


def test_tables_and_text_are_written(task, tmp_path):
    paths = write_task(task, tmp_path / "task")
    with paths["dev"].open(encoding="utf-8") as file:
        assert [(row["text"], row["label"]) for row in csv.DictReader(file)] == task.examples["dev"]
    documents = paths["text"].read_text(encoding="utf-8").split("\n\n")
    assert [document.splitlines() for document in documents] == task.documents
