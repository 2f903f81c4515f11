"""Sentences with tags from CoNLL's columns and from tables."""

import gzip
from pathlib import Path

import pytest

from lightbert.errors import InputError
from lightbert.tasks.datasets.conll import read_sentences
from lightbert.tasks.datasets.own import own_task
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.example import Tagged
from lightbert.tasks.kinds.tokens.kind import Tokens
from parquet import write_parquet

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
SENTENCES = [
    Tagged(("EU", "rejects"), ("B-ORG", "O"), "3"),
    Tagged(("Peter", "Blackburn"), ("B-PER", "I-PER"), "6"),
]


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def refusal(path: str, known: tuple[str, ...] | None = None, **settings) -> str:
    with pytest.raises(InputError) as error:
        read_sentences(path, Files(**settings), known)
    return str(error.value)


def test_blank_lines_part_sentences_and_document_marks_are_no_words(tmp_path):
    assert read_sentences(written(tmp_path, "a.conll", CONLL), Files()) == SENTENCES


def test_documents_need_no_blank_line_after_their_mark(tmp_path):
    path = written(tmp_path, "a.conll", "a O\n-DOCSTART- O\nb O\n \t \nc O")
    assert [sentence.words for sentence in read_sentences(path, Files())] == [("a",), ("b",), ("c",)]


def test_compressed_files_with_carriage_returns_and_a_byte_order_mark_read_the_same(tmp_path):
    content = b"\xef\xbb\xbf" + CONLL.replace("\n", "\r\n").encode()
    assert read_sentences(written(tmp_path, "a.conll.gz", gzip.compress(content)), Files()) == SENTENCES


def test_columns_can_be_chosen(tmp_path):
    path = written(tmp_path, "a.conll", CONLL)
    assert read_sentences(path, Files(tag_column=1))[0].tags == ("NNP", "VBZ")
    assert read_sentences(path, Files(word_column=-3, tag_column=0))[0] == Tagged(
        ("NNP", "VBZ"), ("EU", "rejects"), "3"
    )


def test_where_there_are_tabs_fields_may_hold_spaces(tmp_path):
    path = written(tmp_path, "a.conll", "New York\tB-LOC\n!\tO\n")
    assert read_sentences(path, Files())[0].words == ("New York", "!")


def test_comments_are_words_unless_they_are_asked_for(tmp_path):
    path = written(tmp_path, "a.conll", "# text\nwins O\n# O\n")
    assert read_sentences(path, Files())[0].words == ("#", "wins", "#")
    assert read_sentences(path, Files(comments="#"))[0] == Tagged(("wins", "#"), ("O", "O"), "2")


def test_lists_of_words_and_tags_are_read_from_json_lines_and_parquet(tmp_path):
    path = written(tmp_path, "a.jsonl", '{"tokens": ["EU", "rejects"], "ner": ["B-ORG", "O"], "id": 1}\n')
    expected = [Tagged(("EU", "rejects"), ("B-ORG", "O"), "1")]
    assert read_sentences(path, Files(words="tokens", tags="ner")) == expected
    write_parquet(tmp_path / "a.parquet", {"words": [["EU", "rejects"]], "tags": [[3, 0]]})
    assert read_sentences(str(tmp_path / "a.parquet"), Files())[0].tags == ("3", "0")


def test_only_a_test_file_may_be_without_tags(tmp_path):
    path = written(tmp_path, "a.conll", "EU\nrejects\n")
    assert read_sentences(path, Files(), test=True) == [Tagged(("EU", "rejects"), None, "1")]
    assert refusal(path).endswith("cannot hold words and tags; set data.tag_column")
    path = written(tmp_path, "a.jsonl", '{"words": ["EU"]}\n')
    assert read_sentences(path, Files(), test=True) == [Tagged(("EU",), None, "1")]
    assert "has no column 'tags'" in refusal(path)


BAD = {
    "few.conll": ("a O\n\nb O\nc\nd O\n\ne O\n", 4, "has 1 columns where the first sentence has 2"),
    "byte.conll": (b"a O\n\nb O\nc\xff O\n\ne O\n", 4, "is not UTF-8 (byte 0xff)"),
    "word.conll": ("a\tO\n\n\tO\n\ne\tO\n", 3, "has no word"),
    "tag.conll": ("a O\n\nb O\nc B-PRE\n\ne O\n", 4, "has the tag 'B-PRE', which the training data do not have"),
    "tag.jsonl": (
        '{"words": ["a"], "tags": ["O"]}\n{"words": ["b"], "tags": ["B-PRE"]}\n{"words": ["e"], "tags": ["O"]}\n',
        2,
        "(did you mean 'B-PER'?)",
    ),
    "words.jsonl": (
        '{"words": ["a"], "tags": ["O"]}\n{"words": "b", "tags": ["O"]}\n{"words": ["e"], "tags": ["O"]}\n',
        2,
        "has no list of words",
    ),
    "count.jsonl": (
        '{"words": ["a"], "tags": ["O"]}\n{"words": ["b"], "tags": []}\n{"words": ["e"], "tags": ["O"]}\n',
        2,
        "has 1 words, but not a list of as many tags",
    ),
    "empty.jsonl": (
        '{"words": ["a"], "tags": ["O"]}\n{"words": ["b"], "tags": [" "]}\n{"words": ["e"], "tags": ["O"]}\n',
        2,
        "has no label",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_told_or_its_sentence_is_skipped_and_counted(tmp_path, capsys, name):
    content, line, reason = BAD[name]
    path = written(tmp_path, name, content)
    sentence = refusal(path, ("B-PER", "O"))
    assert sentence.startswith(f"line {line} of '{path}' ")
    assert reason in sentence
    kept = read_sentences(path, Files(bad_rows="skip"), ("B-PER", "O"))
    assert [sentence.words for sentence in kept] == [("a",), ("e",)]
    assert f"skipped 1 bad row of '{path}'; the first: line {line}" in capsys.readouterr().err


def test_what_holds_no_sentence_is_told(tmp_path):
    assert "is empty" in refusal(written(tmp_path, "a.conll", "\n\n-DOCSTART- O\n"))
    assert refusal(written(tmp_path, "b.conll", "a X\n"), ("O",), bad_rows="skip").startswith("no row of")
    assert "not found" in refusal(str(tmp_path / "c.conll"))


def test_a_column_that_is_not_there_is_told(tmp_path):
    path = written(tmp_path, "a.conll", "a O\n")
    assert refusal(path, tag_column=2) == f"'{path}' has 2 columns; data.tag_column=2 must be from 0 to 1"


@pytest.mark.parametrize("name", ["train.conll", "train.txt", "train", "train.jsonl"])
def test_a_training_file_of_sentences_makes_a_tagging_task(tmp_path, name):
    content = '{"words": ["EU", "wins"], "tags": ["B-ORG", "O"]}\n' if name.endswith("jsonl") else "EU B-ORG\nwins O\n"
    task = own_task(Files(train=written(tmp_path, name, content), hold_out=0.0))
    assert task.kind == Tokens(("B-ORG", "O"))
    assert task.metric == "f1"
    assert task.examples("train")[0].words == ("EU", "wins")


def test_parts_of_speech_are_compared_by_accuracy_and_any_name_will_do_if_the_kind_is_given(tmp_path):
    path = written(tmp_path, "corpus.ptb", "EU NNP\nwins VBZ\n")
    task = own_task(Files(train=path, kind="tokens", hold_out=0.0), name="tokens")
    assert (task.name, task.metric) == ("tokens", "accuracy")


def test_dev_and_test_of_a_tagging_task_are_judged_by_the_training_tags(tmp_path):
    train = written(tmp_path, "train.conll", CONLL)
    dev = written(tmp_path, "dev.conll", "EU B-LOC\n")
    task = own_task(Files(train=train, dev=dev, test=written(tmp_path, "test.conll", "EU\n")))
    with pytest.raises(InputError, match="has the tag 'B-LOC', which the training data do not have"):
        task.examples("dev")
    assert task.examples("test") == [Tagged(("EU",), None, "1")]


def test_a_single_tag_teaches_nothing(tmp_path):
    with pytest.raises(InputError, match="has no tag but O; training needs at least two"):
        own_task(Files(train=written(tmp_path, "a.conll", "a O\n")))
