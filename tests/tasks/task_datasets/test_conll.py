"""Sentences with tags from CoNLL columns and from tables."""

import gzip
from pathlib import Path

import pytest

from lightbert.errors import InputError
from lightbert.tasks.datasets.own import check_columns, own_task, read_sentences
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.example import TaggedSentence
from lightbert.tasks.kinds.tokens import Tokens
from parquet import write_parquet

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
SENTENCES = [
    TaggedSentence(("EU", "rejects"), ("B-ORG", "O"), "3"),
    TaggedSentence(("Peter", "Blackburn"), ("B-PER", "I-PER"), "6"),
]


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def error_message(path: str, known: tuple[str, ...] | None = None, **settings) -> str:
    with pytest.raises(InputError) as error:
        read_sentences(path, Files(**settings), known)
    return str(error.value)


def test_blank_lines_separate_sentences_and_document_marks_are_skipped(tmp_path):
    assert read_sentences(written(tmp_path, "a.conll", CONLL), Files()) == SENTENCES


def test_a_blank_line_after_a_document_mark_is_optional(tmp_path):
    path = written(tmp_path, "a.conll", "a O\n-DOCSTART- O\nb O\n \t \nc O")
    assert [sentence.words for sentence in read_sentences(path, Files())] == [("a",), ("b",), ("c",)]


def test_compressed_files_with_carriage_returns_and_a_byte_order_mark_read_the_same(tmp_path):
    content = b"\xef\xbb\xbf" + CONLL.replace("\n", "\r\n").encode()
    assert read_sentences(written(tmp_path, "a.conll.gz", gzip.compress(content)), Files()) == SENTENCES


def test_columns_can_be_chosen(tmp_path):
    path = written(tmp_path, "a.conll", CONLL)
    assert read_sentences(path, Files(tag_column=1))[0].tags == ("NNP", "VBZ")
    assert read_sentences(path, Files(word_column=-3, tag_column=0))[0] == TaggedSentence(
        ("NNP", "VBZ"), ("EU", "rejects"), "3"
    )


def test_tab_separated_fields_may_contain_spaces(tmp_path):
    path = written(tmp_path, "a.conll", "New York\tB-LOC\n!\tO\n")
    assert read_sentences(path, Files())[0].words == ("New York", "!")


def test_comments_are_words_unless_a_prefix_is_set(tmp_path):
    path = written(tmp_path, "a.conll", "# text\nwins O\n# O\n")
    assert read_sentences(path, Files())[0].words == ("#", "wins", "#")
    assert read_sentences(path, Files(comments="#"))[0] == TaggedSentence(("wins", "#"), ("O", "O"), "2")


def test_lists_of_words_and_tags_are_read_from_json_lines_and_parquet(tmp_path):
    path = written(tmp_path, "a.jsonl", '{"tokens": ["EU", "rejects"], "ner": ["B-ORG", "O"], "id": 1}\n')
    expected = [TaggedSentence(("EU", "rejects"), ("B-ORG", "O"), "1")]
    assert read_sentences(path, Files(words="tokens", tags="ner")) == expected
    write_parquet(tmp_path / "a.parquet", {"words": [["EU", "rejects"]], "tags": [[3, 0]]})
    assert read_sentences(str(tmp_path / "a.parquet"), Files())[0].tags == ("3", "0")


def test_only_a_test_file_may_be_without_tags(tmp_path):
    path = written(tmp_path, "a.conll", "EU\nrejects\n")
    assert read_sentences(path, Files(), test=True) == [TaggedSentence(("EU", "rejects"), None, "1")]
    assert error_message(path).endswith("for both; set data.tag_column")
    path = written(tmp_path, "a.jsonl", '{"words": ["EU"]}\n')
    assert read_sentences(path, Files(), test=True) == [TaggedSentence(("EU",), None, "1")]
    assert "has no column 'tags'" in error_message(path)


BAD = {
    "few.conll": ("a O\n\nb O\nc\nd O\n\ne O\n", 4, "must have 2 columns like the first sentence, has 1"),
    "byte.conll": (b"a O\n\nb O\nc\xff O\n\ne O\n", 4, "is not UTF-8 (byte 0xff)"),
    "word.conll": ("a\tO\n\n\tO\n\ne\tO\n", 3, "has no word"),
    "tag.conll": ("a O\n\nb O\nc B-PRE\n\ne O\n", 4, "has the tag 'B-PRE', which must occur in the training data"),
    "tag.jsonl": (
        '{"words": ["a"], "tags": ["O"]}\n{"words": ["b"], "tags": ["B-PRE"]}\n{"words": ["e"], "tags": ["O"]}\n',
        2,
        "(did you mean 'B-PER'?)",
    ),
    "words.jsonl": (
        '{"words": ["a"], "tags": ["O"]}\n{"words": "b", "tags": ["O"]}\n{"words": ["e"], "tags": ["O"]}\n',
        2,
        "must have a list of words",
    ),
    "count.jsonl": (
        '{"words": ["a"], "tags": ["O"]}\n{"words": ["b"], "tags": []}\n{"words": ["e"], "tags": ["O"]}\n',
        2,
        "must have a list of 1 tags, one per word",
    ),
    "empty.jsonl": (
        '{"words": ["a"], "tags": ["O"]}\n{"words": ["b"], "tags": [" "]}\n{"words": ["e"], "tags": ["O"]}\n',
        2,
        "has no label",
    ),
}


def test_a_bad_line_is_an_error_or_its_sentence_is_skipped_and_counted(tmp_path, capsys):
    for name in BAD:
        content, line, reason = BAD[name]
        path = written(tmp_path, name, content)
        sentence = error_message(path, ("B-PER", "O"))
        assert sentence.startswith(f"line {line} of '{path}' ")
        assert reason in sentence
        kept = read_sentences(path, Files(bad_rows="skip"), ("B-PER", "O"))
        assert [sentence.words for sentence in kept] == [("a",), ("e",)]
        assert f"skipped 1 bad row of '{path}'; the first: line {line}" in capsys.readouterr().err


def test_a_file_without_sentences_is_an_error(tmp_path):
    assert "is empty" in error_message(written(tmp_path, "a.conll", "\n\n-DOCSTART- O\n"))
    assert error_message(written(tmp_path, "b.conll", "a X\n"), ("O",), bad_rows="skip").startswith("no row of")
    assert "not found" in error_message(str(tmp_path / "c.conll"))


def test_a_column_out_of_range_is_an_error(tmp_path):
    path = written(tmp_path, "a.conll", "a O\n")
    assert error_message(path, tag_column=2) == f"data.tag_column must be in [-2, 1], the columns of '{path}', got 2"


def test_a_training_file_of_sentences_is_a_tagging_task(tmp_path):
    for name in ["train.conll", "train.txt", "train", "train.jsonl"]:
        content = (
            '{"words": ["EU", "wins"], "tags": ["B-ORG", "O"]}\n' if name.endswith("jsonl") else "EU B-ORG\nwins O\n"
        )
        task = own_task(Files(train=written(tmp_path, name, content), hold_out=0.0))
        assert task.kind == Tokens(("B-ORG", "O"))
        assert task.metric == "f1"
        assert task.examples("train")[0].words == ("EU", "wins")


def test_part_of_speech_tags_are_ranked_by_accuracy_and_any_file_name_works_with_kind(tmp_path):
    path = written(tmp_path, "corpus.ptb", "EU NNP\nwins VBZ\n")
    task = own_task(Files(train=path, kind="tokens", hold_out=0.0), name="tokens")
    assert (task.name, task.metric) == ("tokens", "accuracy")


def test_dev_and_test_tags_must_occur_in_training(tmp_path):
    train = written(tmp_path, "train.conll", CONLL)
    dev = written(tmp_path, "dev.conll", "EU B-LOC\n")
    task = own_task(Files(train=train, dev=dev, test=written(tmp_path, "test.conll", "EU\n")))
    with pytest.raises(InputError, match="has the tag 'B-LOC', which must occur in the training data"):
        task.examples("dev")
    assert task.examples("test") == [TaggedSentence(("EU",), None, "1")]


def test_a_single_tag_is_an_error(tmp_path):
    with pytest.raises(InputError, match="training requires at least two tags, got O"):
        own_task(Files(train=written(tmp_path, "a.conll", "a O\n")))


PROSE = "It was a dark and stormy night.\nCall me Ishmael.\n\nSome years ago, never mind how long, I went to sea.\n"


@pytest.mark.parametrize("content", [PROSE, "one\nword\nper\nline\n"])
@pytest.mark.parametrize("kind", ["auto", "tokens"])
def test_plain_text_is_not_taken_for_columns(tmp_path, content, kind):
    path = written(tmp_path, "my.txt", content)
    with pytest.raises(InputError) as error:
        own_task(Files(train=path, kind=kind))
    assert str(error.value) == (
        f"'{path}' must have CoNLL columns, a word and its tag per line, but seems to be plain text; to classify "
        "texts, give a table with texts and labels (.csv, .tsv, .jsonl, .ndjson, .json, .parquet, .xlsx)"
    )


def test_a_single_bad_line_is_not_taken_for_plain_text(tmp_path):
    path = written(tmp_path, "my.txt", "a O\nb B-X\n\nc O\nd O\ne\nf O\n")
    with pytest.raises(InputError, match=r"line 6 of '.*' must have 2 columns like the first sentence, has 1; fix it"):
        own_task(Files(train=path))


def test_comments_that_are_read_as_words_are_explained(tmp_path):
    path = written(tmp_path, "my.conllu", "# text = a b\na O\nb B-X\n")
    assert "has 2 (if lines that begin with # are comments, set data.comments=#)" in error_message(path)
    assert len(read_sentences(path, Files(comments="#"))) == 1


def test_lines_of_equally_many_words_are_not_tags(tmp_path):
    path = tmp_path / "verse.txt"
    path.write_text("".join(f"we saw the tree number{line}\n" for line in range(60)))
    for kind in ("auto", "tokens"):
        with pytest.raises(InputError, match="a word and its tag per line, but seems to be plain text"):
            check_columns(str(path), Files(train=str(path), kind=kind))


def test_unusual_tags_are_read(tmp_path):
    for lines in [
        # Morphological tags are many, but sentences end with blank lines.
        [f"word{number} tag{number}\n" + ("\n" if number % 20 == 19 else "") for number in range(300)],
        # One long sentence with few tags.
        [f"word{number} tag{number % 100}\n" for number in range(300)],
        # A small file.
        [f"word{number} tag{number}\n" for number in range(49)],
    ]:
        path = tmp_path / "tags.conll"
        path.write_text("".join(lines))
        check_columns(str(path), Files(train=str(path)))
