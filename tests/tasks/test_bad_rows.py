"""Rows that cannot be read: told or counted."""

from pathlib import Path

import pytest

from lightbert.errors import InputError
from lightbert.tasks.bad_rows import BadRows

PATH = Path("some.tsv")


def test_a_bad_row_is_an_error_that_names_file_line_and_remedy():
    with pytest.raises(InputError, match=r"'some.tsv', line 7: 2 columns; .*bad_rows=skip"), BadRows(PATH) as bad:
        bad.meet(7, "2 columns")


def test_skipped_rows_are_counted_and_told_of(capsys):
    with BadRows(PATH, "skip") as bad:
        for line in range(10, 22):
            bad.meet(line, "2 columns")
    assert len(bad.lines) == 12
    assert capsys.readouterr().err == "'some.tsv': skipped bad rows: 12 (line 10, 11, 12, 13, 14, …)\n"


def test_a_file_without_bad_rows_is_not_spoken_of(capsys):
    with BadRows(PATH, "skip"):
        pass
    assert capsys.readouterr().err == ""


def test_there_are_two_choices():
    with pytest.raises(InputError, match="did you mean 'skip'"):
        BadRows(PATH, "skipp")
