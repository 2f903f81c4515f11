from lightbert.errors import InputError, listed, unknown


def test_a_misspelled_name_gets_the_most_similar_choice_as_a_suggestion():
    error = unknown("preset", "convbert-smal", ["bert-small", "convbert-small"])
    assert str(error) == "unknown preset 'convbert-smal'; did you mean 'convbert-small'?"


def test_a_name_without_a_similar_choice_gets_the_list_of_choices():
    assert str(unknown("family", "zzz", ["bert", "composite"])) == "unknown family 'zzz'; choose from bert, composite"


def test_an_empty_list_of_choices_is_reported():
    assert str(unknown("task", "mnli", [])) == "unknown task 'mnli'; no choices are available"


def test_an_input_error_is_a_value_error():
    assert isinstance(unknown("verb", "x", ["y"]), InputError)
    assert issubclass(InputError, ValueError)


def test_few_names_are_listed_and_many_or_long_ones_shortened():
    assert listed(["a", "b"]) == "a, b"
    assert listed([]) == ""
    assert listed((f"c{number}" for number in range(100_000)), most=3) == "c0, c1, c2, … (100,000 in all)"
    assert listed(["x" * 100], longest=5) == "xxxx…"
