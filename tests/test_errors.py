from lightbert.errors import InputError, unknown


def test_a_near_miss_is_answered_with_the_name_that_was_meant():
    error = unknown("preset", "convbert-smal", ["bert-small", "convbert-small"])
    assert str(error) == "unknown preset 'convbert-smal'; did you mean 'convbert-small'?"


def test_a_name_like_no_other_is_answered_with_all_choices():
    assert str(unknown("family", "zzz", ["bert", "composite"])) == "unknown family 'zzz'; choose from bert, composite"


def test_an_empty_list_of_choices_still_gives_a_sentence():
    assert str(unknown("task", "mnli", [])) == "unknown task 'mnli'; there is none to choose from"


def test_an_input_error_is_a_value_error():
    assert isinstance(unknown("verb", "x", ["y"]), InputError)
    assert issubclass(InputError, ValueError)
