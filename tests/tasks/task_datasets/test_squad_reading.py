"""SQuAD data files: valid and tolerated input, and errors."""

import gzip
import json
import lzma

import pytest
from questions import document, question_entry, write

from lightbert.errors import InputError
from lightbert.tasks.datasets.squad import read
from lightbert.tasks.example import Answer
from lightbert.tasks.kinds.spans import locate_answer

CONTEXT = "Ada  Lovelace met Charles Babbage in 1833 (June)."


def test_questions_have_context_answers_and_id(tmp_path):
    content = document(CONTEXT, question_entry("a", ("Ada", 0)), question_entry("b", ("1833", 37), ("June", 43)))
    first, second = read(write(tmp_path / "dev.json", content))
    assert (first.id, first.question, first.answers) == ("a", "Who is a?", (Answer("Ada", 0),))
    assert second.answers == (Answer("1833", 37), Answer("June", 43))
    assert first.context is second.context


@pytest.mark.parametrize(("ending", "compress"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_files_are_read(tmp_path, ending, compress):
    path = tmp_path / f"dev.json{ending}"
    path.write_bytes(compress(json.dumps(document(CONTEXT, question_entry("a", ("Ada", 0)))).encode()))
    assert [question.id for question in read(path)] == ["a"]


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = tmp_path / "dev.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(document(CONTEXT, question_entry("a"))).encode())
    assert len(read(path)) == 1


def test_no_answer_and_unknown_answers_are_distinguished(tmp_path):
    unknown = {"id": "c", "question": "Who?"}
    content = document(
        CONTEXT, question_entry("a"), question_entry("b", ("Ada", 0), is_impossible=True), unknown, version="v2.0"
    )
    assert [question.answers for question in read(write(tmp_path / "x.json", content))] == [(), (), None]


def test_an_answer_may_be_anywhere_in_the_overlapping_words():
    for text, start, expected in [
        ("Ada", 0, Answer("Ada", 0)),
        ("Lovelace", 4, Answer("Lovelace", 5)),
        ("lovelace", 7, Answer("Lovelace", 5)),
        ("Ada Lovelace", 0, Answer("Ada  Lovelace", 0)),
        ("June", 42, Answer("June", 43)),
        ("Charles", 0, None),
        ("Ada", -1, None),
        ("Ada", 99, None),
        ("", 0, None),
        (" ", 3, None),
    ]:
        assert locate_answer(CONTEXT, text, start) == expected


def test_the_nearest_match_is_used():
    assert locate_answer("no-no-no", "NO", 4) == Answer("no", 3)


def test_an_answer_outside_its_context_is_an_error_that_names_the_question(tmp_path):
    path = write(
        tmp_path / "x.json", document(CONTEXT, question_entry("a", ("Ada", 0)), question_entry("b7", ("Bob", 3)))
    )
    sentence = (
        r"the answer 'Bob' of 'b7' must occur in its context at character 3 "
        r"\(data\[0\]\.paragraphs\[0\]\.qas\[1\]\.answers\[0\]\); "
        r"fix it, or skip such rows with data.bad_rows=skip"
    )
    with pytest.raises(InputError, match=sentence):
        read(path)


def test_bad_questions_are_skipped_and_counted_on_request(tmp_path, capsys):
    entries = [question_entry("a", ("Ada", 0)), question_entry("b", ("Bob", 3)), {"id": "c"}]
    questions = read(write(tmp_path / "x.json", document(CONTEXT, *entries)), bad_rows="skip")
    assert ([question.id for question in questions], questions.skipped) == (["a"], 2)
    said = capsys.readouterr().err
    assert said.startswith("skipped 2 of 3 questions of '")
    assert "the first: the answer 'Bob' of 'b' must occur" in said


FAULTS = {
    "no list of articles": ({"version": "1.1"}, "the top must have a list 'data'"),
    "no paragraphs": ({"data": [{"title": "t"}]}, r"data\[0\] must have a list 'paragraphs'"),
    "an article of text": ({"data": ["t"]}, r"data\[0\] must have a list 'paragraphs'"),
    "no questions": (
        {"data": [{"paragraphs": [{"context": "c"}]}]},
        r"data\[0\]\.paragraphs\[0\] must have a list 'qas'",
    ),
    "no context": (
        {"data": [{"paragraphs": [{"qas": [question_entry("a")]}]}]},
        r"data\[0\]\.paragraphs\[0\] must have a text 'context'",
    ),
    "a question of text": ({"data": [{"paragraphs": [{"context": "c", "qas": ["a"]}]}]}, r"qas\[0\] must be an object"),
    "a number for an id": (document("c", {"id": 3, "question": "q"}), r"qas\[0\] must have a text 'id'"),
    "no start": (
        document("c", {"id": "a", "question": "q", "answers": [{"text": "c"}]}),
        r"qas\[0\]\.answers\[0\] must have an integer 'answer_start'",
    ),
    "true for a start": (
        document("c", {"id": "a", "question": "q", "answers": [{"text": "c", "answer_start": True}]}),
        "must have an integer 'answer_start'",
    ),
    "not an object": ([], "is not a JSON object"),
    "no question at all": ({"data": []}, "must contain at least one valid question"),
}


def test_errors_name_the_file_and_the_json_path(tmp_path):
    for fault in FAULTS:
        content, sentence = FAULTS[fault]
        with pytest.raises(InputError, match=sentence) as caught:
            read(write(tmp_path / "x.json", content))
        assert "x.json" in str(caught.value)


def test_invalid_json_is_an_error(tmp_path):
    for content, sentence in [
        (b"{'data'", "is not JSON"),
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"data": "\xff"}', "is not UTF-8 at byte 10"),
    ]:
        path = tmp_path / "x.json"
        path.write_bytes(content)
        with pytest.raises(InputError, match=sentence):
            read(path)


def test_a_missing_or_truncated_file_is_a_one_line_error(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read(tmp_path / "absent.json")
    path = tmp_path / "x.json.xz"
    path.write_bytes(lzma.compress(json.dumps(document(CONTEXT, question_entry("a"))).encode())[:-20])
    with pytest.raises(InputError, match="truncated or not a valid"):
        read(path)


def test_a_question_without_an_answer_is_an_error_in_1_1(tmp_path):
    path = write(tmp_path / "x.json", document(CONTEXT, question_entry("a")))
    with pytest.raises(InputError, match=r"every question of SQuAD 1.1 must have an answer, got none for 'a' \(.*\)"):
        read(path, unanswerable=False)
