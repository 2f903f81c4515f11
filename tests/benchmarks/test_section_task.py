"""The task of sections, read from a package of many small functions."""

import csv
from collections import Counter
from itertools import combinations

import pytest

from benchmarks.adaptation import DESCRIPTION, read_task, sentences_by_section, write_task

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


DOCSTRING = """Fit the line to all of the points.

Parameters
----------
points : array of shape (n, 2)
    The points that the line should fit.

    They are never changed by this function.
    Long enough as a second line of text.
weights : array, the weights of the points, optional
    All points have the same weight by default.

Returns
-------
line : Line
    The line with the smallest sum of squares.

Raises
------
ValueError
    If there are fewer points than two.

See Also
--------
other : Fit a curve to all of the points.

Notes
-----
The solution is found by the normal equations.

>>> fit([(0, 0)])
"""


def test_every_sentence_has_the_section_that_it_is_in():
    assert sentences_by_section(DOCSTRING) == [
        ("description", "Fit the line to all of the points."),
        ("parameters", "The points that the line should fit."),
        ("parameters", "They are never changed by this function."),
        ("parameters", "Long enough as a second line of text."),
        ("parameters", "All points have the same weight by default."),
        ("returns", "The line with the smallest sum of squares."),
        ("raises", "If there are fewer points than two."),
        ("notes", "The solution is found by the normal equations."),
    ]


def test_a_docstring_without_known_sections_or_headings_has_no_sentences():
    assert sentences_by_section("Fit the line to all of the points.") == []
    assert sentences_by_section("Fit the line to all of the points.\n\nThe title here\n----\nSome words of text.") == []
    table = "Fit the line to the points.\n\nNotes\n-----\nThe table of all the results:\n\n    Returns\n    -------\n"
    assert [section for section, _ in sentences_by_section(table)] == ["description", "notes"]
