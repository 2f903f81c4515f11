"""SQuAD's data files: what is read, what is tolerated, and how each fault is told."""

import gzip
import json
import lzma

import pytest
from questions import asked, document, write

from lightbert.errors import InputError
from lightbert.tasks.datasets.squad.reading import read
from lightbert.tasks.example import Answer
from lightbert.tasks.kinds.spans.location import located

CONTEXT = "Ada  Lovelace met Charles Babbage in 1833 (June)."


def test_questions_come_with_context_answers_and_id(tmp_path):
    content = document(CONTEXT, asked("a", ("Ada", 0)), asked("b", ("1833", 37), ("June", 43)))
    first, second = read(write(tmp_path / "dev.json", content)).questions
    assert (first.id, first.question, first.answers) == ("a", "Who is a?", (Answer("Ada", 0),))
    assert second.answers == (Answer("1833", 37), Answer("June", 43))
    assert first.context is second.context


@pytest.mark.parametrize(("ending", "compress"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_files_are_read(tmp_path, ending, compress):
    path = tmp_path / f"dev.json{ending}"
    path.write_bytes(compress(json.dumps(document(CONTEXT, asked("a", ("Ada", 0)))).encode()))
    assert [question.id for question in read(path).questions] == ["a"]


def test_a_byte_order_mark_is_no_fault(tmp_path):
    path = tmp_path / "dev.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(document(CONTEXT, asked("a"))).encode())
    assert len(read(path).questions) == 1


def test_no_answer_and_unknown_answer_are_told_apart(tmp_path):
    unknown = {"id": "c", "question": "Who?"}
    content = document(CONTEXT, asked("a"), asked("b", ("Ada", 0), is_impossible=True), unknown, version="v2.0")
    assert [question.answers for question in read(write(tmp_path / "x.json", content)).questions] == [(), (), None]


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
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
    ],
)
def test_an_answer_may_stand_within_the_words_it_touches(text, start, expected):
    assert located(CONTEXT, text, start) == expected


def test_the_nearest_of_several_places_is_taken():
    assert located("no-no-no", "NO", 4) == Answer("no", 3)


def test_an_answer_that_is_not_in_its_context_names_the_question(tmp_path):
    path = write(tmp_path / "x.json", document(CONTEXT, asked("a", ("Ada", 0)), asked("b7", ("Bob", 3))))
    sentence = (
        r"the answer 'Bob' of the question 'b7' is not in its context at character 3 "
        r"\(data\[0\]\.paragraphs\[0\]\.qas\[1\]\.answers\[0\]\); "
        r"fix it, or skip such rows with data.bad_rows=skip"
    )
    with pytest.raises(InputError, match=sentence):
        read(path)


def test_bad_questions_are_left_out_and_counted_on_request(tmp_path):
    entries = [asked("a", ("Ada", 0)), asked("b", ("Bob", 3)), {"id": "c"}]
    questions, skipped = read(write(tmp_path / "x.json", document(CONTEXT, *entries)), bad_rows="skip")
    assert [question.id for question in questions] == ["a"]
    assert len(skipped) == 2
    assert "'b'" in skipped[0]
    assert skipped[1] == "data[0].paragraphs[0].qas[2] has no text 'question'"


FAULTS = {
    "no list of articles": ({"version": "1.1"}, "the top has no list 'data'"),
    "no paragraphs": ({"data": [{"title": "t"}]}, r"data\[0\] has no list 'paragraphs'"),
    "an article of text": ({"data": ["t"]}, r"data\[0\] has no list 'paragraphs'"),
    "no questions": ({"data": [{"paragraphs": [{"context": "c"}]}]}, r"data\[0\]\.paragraphs\[0\] has no list 'qas'"),
    "no context": (
        {"data": [{"paragraphs": [{"qas": [asked("a")]}]}]},
        r"data\[0\]\.paragraphs\[0\] has no text 'context'",
    ),
    "a question of text": ({"data": [{"paragraphs": [{"context": "c", "qas": ["a"]}]}]}, r"qas\[0\] is no object"),
    "a number for an id": (document("c", {"id": 3, "question": "q"}), r"qas\[0\] has no text 'id'"),
    "no start": (
        document("c", {"id": "a", "question": "q", "answers": [{"text": "c"}]}),
        r"qas\[0\]\.answers\[0\] has no whole number 'answer_start'",
    ),
    "true for a start": (
        document("c", {"id": "a", "question": "q", "answers": [{"text": "c", "answer_start": True}]}),
        "has no whole number 'answer_start'",
    ),
    "not an object": ([], "holds no JSON object"),
    "no question at all": ({"data": []}, "holds no question that can be used"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_by_its_place_and_file(tmp_path, fault):
    content, sentence = FAULTS[fault]
    with pytest.raises(InputError, match=sentence) as caught:
        read(write(tmp_path / "x.json", content))
    assert "x.json" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{'data'", "is not JSON"),
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"data": "\xff"}', "is not UTF-8 at byte 10"),
    ],
)
def test_what_is_not_json_is_refused(tmp_path, content, sentence):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read(path)


def test_a_missing_or_truncated_file_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read(tmp_path / "absent.json")
    path = tmp_path / "x.json.xz"
    path.write_bytes(lzma.compress(json.dumps(document(CONTEXT, asked("a"))).encode())[:-20])
    with pytest.raises(InputError, match="truncated or not a valid"):
        read(path)


def test_1_1_refuses_a_question_without_an_answer(tmp_path):
    path = write(tmp_path / "x.json", document(CONTEXT, asked("a")))
    with pytest.raises(InputError, match=r"'a' \(.*\) has no answer, which SQuAD 2.0 allows and 1.1 not"):
        read(path, unanswerable=False)


def test_an_unknown_choice_for_bad_rows_is_refused(tmp_path):
    with pytest.raises(InputError, match="unknown choice for bad_rows 'ignore'"):
        read(tmp_path / "x.json", bad_rows="ignore")
