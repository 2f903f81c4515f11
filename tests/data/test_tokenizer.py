"""Tokenizers: training, also in another process, loading and saving."""

import json
import signal
import subprocess
import sys

import pytest
from tokenizers import Tokenizer, models

from lightbert.data import tokenizer
from lightbert.data.tokenizer import SPECIALS, train, train_in_process, write_texts
from lightbert.errors import InputError
from lightbert.processes import ProcessFailedError

# Many words of equal frequency: every tie could be broken differently in another process.
CORPUS = [f"Word{chr(97 + i % 26)}{chr(97 + i // 26)} naïve CAFÉ, x{i}." for i in range(300)]

TRAIN_IN_A_PROCESS = """
import sys
from lightbert.data.tokenizer import train
from tests_corpus import CORPUS
print(train(CORPUS, sys.argv[1], 180).to_str())
"""


@pytest.mark.parametrize("model", ["wordpiece", "unigram"])
def test_training_gives_the_same_bytes_in_every_process(tmp_path, model):
    (tmp_path / "tests_corpus.py").write_text(f"CORPUS = {CORPUS!r}")
    command = [sys.executable, "-c", TRAIN_IN_A_PROCESS, model]
    running = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {process.communicate()[0] for process in running}
    assert outputs == {train(CORPUS, model, 180).to_str() + "\n"}


def test_a_trained_vocabulary_starts_with_the_special_tokens():
    for model in ("wordpiece", "unigram"):
        trained = train(CORPUS, model, 180)
        assert [trained.id_to_token(index) for index in range(5)] == list(SPECIALS)
        # The Unigram trainer stops early because the text is too short for more pieces.
        assert trained.get_vocab_size() == (180 if model == "wordpiece" else 106)
        assert trained.encode("word", "cafe").tokens[0] == "[CLS]"
        assert trained.encode("word", "cafe").tokens[-1] == "[SEP]"


def test_training_lowercases_and_strips_accents_by_default():
    for model in ("wordpiece", "unigram"):
        plain = train(CORPUS, model, 180)
        assert plain.encode("CAFÉ").ids == plain.encode("cafe").ids
        cased = train(CORPUS, model, 180, lowercase=False)
        assert cased.encode("WORD").ids != cased.encode("word").ids


def test_rare_characters_beyond_a_quarter_of_the_vocabulary_are_unknown():
    rare = "".join(chr(0x4E00 + i) for i in range(200))
    trained = train(["common words " * 50, rare], "wordpiece", 100)
    assert trained.get_vocab_size() <= 100
    assert "[UNK]" in trained.encode(rare).tokens
    assert "[UNK]" not in trained.encode("common words").tokens


def test_training_checks_its_arguments():
    for texts, size, problem in (
        (["a b"], 10, "vocab_size must be >= 64, got 10"),
        (["", " "], 100, "training a tokenizer requires text"),
    ):
        with pytest.raises(InputError, match=problem):
            train(texts, "wordpiece", size)


def write_vocabulary(path, *words):
    path.write_text("\n".join([*SPECIALS, *words]) + "\n")
    return path


def test_a_vocab_txt_loads_as_berts_tokenizer(tmp_path):
    loaded = tokenizer.load(write_vocabulary(tmp_path / "vocab.txt", "un", "##able", "the", ","))
    assert loaded.encode("The unable, [MASK]").tokens == ["[CLS]", "the", "un", "##able", ",", "[MASK]", "[SEP]"]


def test_capitals_in_a_vocab_txt_make_it_cased(tmp_path):
    loaded = tokenizer.load(write_vocabulary(tmp_path / "vocab.txt", "The", "the"))
    assert loaded.encode("The the", add_special_tokens=False).tokens == ["The", "the"]


def test_a_saved_tokenizer_loads_unchanged(tmp_path):
    for model in ("wordpiece", "unigram"):
        trained = train(CORPUS, model, 180)
        tokenizer.save(trained, tmp_path)
        assert tokenizer.load(tmp_path).to_str() == trained.to_str()
        assert tokenizer.load(tmp_path / "tokenizer.json").to_str() == trained.to_str()


def test_transformers_loads_a_saved_tokenizer(tmp_path):
    for model in ("wordpiece", "unigram"):
        transformers = pytest.importorskip("transformers")

        trained = train(CORPUS, model, 180)
        tokenizer.save(trained, tmp_path)
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        both = theirs("Wordab naïve", "x1.")
        assert both["input_ids"] == trained.encode("Wordab naïve", "x1.").ids
        assert both["token_type_ids"] == trained.encode("Wordab naïve", "x1.").type_ids
        assert (theirs.pad_token_id, theirs.mask_token_id, theirs.unk_token_id) == (0, 4, 1)


def test_padding_and_truncation_of_a_given_tokenizer_are_dropped(tmp_path):
    given = train(CORPUS, "wordpiece", 180)
    given.enable_padding(length=64)
    given.enable_truncation(8)
    given.save(str(tmp_path / "tokenizer.json"))
    assert len(tokenizer.load(tmp_path).encode("word " * 20, add_special_tokens=False)) >= 20


def test_an_unusable_tokenizer_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"tokenizer '.*' not found"):
        tokenizer.load(tmp_path / "missing.json")
    with pytest.raises(InputError, match=r"must contain tokenizer\.json or vocab\.txt"):
        tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    with pytest.raises(InputError, match="is not a valid tokenizer"):
        tokenizer.load(tmp_path)
    Tokenizer(models.WordLevel({"[UNK]": 0, "<pad>": 1}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=r"has no \[CLS\] token"):
        tokenizer.load(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not UTF-8"):
        tokenizer.load(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_text("[PAD]\nthe\n")
    with pytest.raises(InputError, match=r"must contain a line \[UNK\]"):
        tokenizer.load(tmp_path / "vocab.txt")
    write_vocabulary(tmp_path / "vocab.txt", "the", "the")
    with pytest.raises(InputError, match="has duplicate entries"):
        tokenizer.load(tmp_path / "vocab.txt")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("model", ["wordpiece", "unigram"])
def test_a_word_of_a_million_characters_takes_no_time(model):
    long = "ab" * 500_000
    trained = train(["the cat sat on the mat"] * 5 + [long], model, 100)
    if model == "wordpiece":
        expected = train(["the cat sat on the mat"] * 5, model, 100)
        assert trained.to_str() == expected.to_str()
        assert trained.encode(long, add_special_tokens=False).tokens == ["[UNK]"]


def test_parts_of_a_long_text_without_spaces_are_learned():
    pieces = ["http://example.org/" + "/".join(["the", "cat"] * 40)] * 3
    spaced = [text.replace("/", " / ").replace(":", " : ").replace(".", " . ") for text in pieces]
    assert train(pieces, "wordpiece", 100).to_str() == train(spaced, "wordpiece", 100).to_str()


TEXTS = ["some words, more words\r\nand a line", "naïve “words”\u2028\x85 again", "the rest"] * 20


@pytest.fixture
def file(tmp_path):
    assert write_texts(tmp_path / "texts", TEXTS) == len(TEXTS)
    return tmp_path / "texts"


def trained(file):
    return train_in_process(file, "wordpiece", 100, lowercase=True, report=lambda done: None).to_str()


def test_the_tokenizer_is_that_of_training_in_the_same_process(file):
    for lowercase in (True, False):
        for model in ("wordpiece", "unigram"):
            seen: list[int] = []
            found = train_in_process(file, model, 100, lowercase=lowercase, report=seen.append)
            assert found.to_str(pretty=True) == tokenizer.train(TEXTS, model, 100, lowercase=lowercase).to_str(
                pretty=True
            )
            assert seen[-1] == tokenizer.PASSES[model] * len(TEXTS)


def test_bad_input_is_the_same_sentence(tmp_path):
    write_texts(tmp_path / "texts", [" "])
    with pytest.raises(InputError, match=r"^training a tokenizer requires text, but the sources have none"):
        trained(tmp_path / "texts")


ABORTED = ProcessFailedError(-signal.SIGABRT, "memory allocation of 2147483648 bytes failed")
NO_THREADS = ProcessFailedError(1, "PanicException: ThreadPoolBuildError { kind: IOError }")
KILLED = ProcessFailedError(-signal.SIGKILL, "")


def failing(monkeypatch, failure):
    def call(*_, **__):
        raise failure

    monkeypatch.setattr(tokenizer, "call", call)


def test_a_process_without_memory_is_one_sentence(file, monkeypatch):
    for failure, how in (
        (ABORTED, "was ended by SIGABRT: the memory of this machine is not sufficient, 2 GiB were requested ("),
        (NO_THREADS, "failed: the memory of this machine is not sufficient ("),
        (KILLED, "was ended by SIGKILL: the memory of this machine is not sufficient ("),
    ):
        failing(monkeypatch, failure)
        with pytest.raises(InputError) as caught:
            trained(file)
        assert str(caught.value).startswith(f"the training of the tokenizer {how}")
        assert str(caught.value).endswith("); use a machine with more memory, or give a tokenizer with --tokenizer")


def test_a_bug_is_not_reported_as_lack_of_memory(file, monkeypatch):
    failing(monkeypatch, ProcessFailedError(1, "KeyError: 'a bug'"))
    with pytest.raises(RuntimeError, match="a bug"):
        trained(file)
