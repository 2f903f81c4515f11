from lightbert.data.text.docstring_sections import sentences_by_section

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


def test_every_sentence_has_the_section_that_it_is_in() -> None:
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


def test_a_docstring_without_known_sections_has_no_sentences() -> None:
    assert sentences_by_section("Fit the line to all of the points.") == []
    assert sentences_by_section("Fit the line to all of the points.\n\nThe title here\n----\nSome words of text.") == []


def test_an_indented_line_above_a_rule_is_no_heading() -> None:
    table = "Fit the line to the points.\n\nNotes\n-----\nThe table of all the results:\n\n    Returns\n    -------\n"
    assert [section for section, _ in sentences_by_section(table)] == ["description", "notes"]
