from lightbert.errors import InputError, unknown


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
