"""Preparation of token shards."""

import json
import os
import random
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from lightbert.data import encoding, preparation
from lightbert.data.encoding import is_held_out, score
from lightbert.data.preparation import Settings, differences, prepare, resolve, sample
from lightbert.data.shards import Shards
from lightbert.data.staging import StreamWriter
from lightbert.data.tokenizer import PASSES, SPECIALS, train, unigram
from lightbert.errors import InputError
from parquet import write_parquet

WORDS = [
    *("the", "a", "cat", "dog", "house", "tree", "runs", "sleeps"),
    *("under", "over", "quickly", "and", "but", "red", "blue"),
]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK", 400)


@pytest.fixture
def corpus(tmp_path):
    """Five files of forty documents of one to four lines."""
    choose = random.Random(0)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for file in range(5):
        documents = [
            "\n".join(" ".join(choose.choices(WORDS, k=6)).capitalize() + "." for _ in range(choose.randint(1, 4)))
            for _ in range(40)
        ]
        (folder / f"{file}.txt").write_text("\n\n".join(documents))
    return folder


def settings(corpus, **changes):
    values = {"sources": (str(corpus),), "vocab_size": 100, "held_out": 0.1, "shard_characters": 3000} | changes
    return Settings(**values)


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def decoded(folder, split):
    shards = Shards.open(folder, split)
    decode = shards.tokenizer().decode
    return [
        [decode(sentence.tolist()) for sentence in shards.document(index).sentences]
        for index in range(shards.n_documents)
    ]


def originals(corpus):
    texts = [document for path in sorted(corpus.iterdir()) for document in path.read_text().split("\n\n")]
    return [[line.lower().replace(".", " .").replace(" .", ".") for line in text.splitlines()] for text in texts]


def test_every_document_is_written_once_with_its_sentences(corpus, tmp_path):
    result = prepare(settings(corpus), tmp_path / "out", workers=1)
    train, held_out = decoded(tmp_path / "out", "train"), decoded(tmp_path / "out", "held-out")
    expected = originals(corpus)
    assert [document for document in expected if document in train] == train
    assert [document for document in expected if document in held_out] == held_out
    assert len(train) + len(held_out) == 200
    assert 5 <= len(held_out) <= 40
    assert len(result.manifest.shards) > 4
    assert not (tmp_path / "out.partial").exists()


def test_the_bytes_do_not_depend_on_the_number_of_workers(corpus, tmp_path):
    for workers in (1, 2, 3):
        prepare(settings(corpus), tmp_path / f"out{workers}", workers)
    one, two, three = (content(tmp_path / f"out{workers}") for workers in (1, 2, 3))
    assert one == two == three


def test_copies_of_a_document_are_in_the_same_split(corpus, tmp_path):
    prepare(settings(corpus), tmp_path / "out", workers=1)
    again = corpus / "5.txt"
    again.write_text("\n\n".join((corpus / f"{file}.txt").read_text() for file in range(5)))
    prepare(settings(corpus), tmp_path / "twice", workers=1)
    held_out, twice = decoded(tmp_path / "out", "held-out"), decoded(tmp_path / "twice", "held-out")
    assert twice == held_out * 2


class _CrashError(Exception):
    pass


def _crash(*_):
    raise _CrashError


def test_crashes_do_not_change_the_output(corpus, tmp_path, monkeypatch):
    wanted = settings(corpus, streams=3)
    prepare(wanted, tmp_path / "undisturbed", workers=1)
    append = StreamWriter.append
    calls = 0

    def crash_now_and_then(self, *arguments):
        nonlocal calls
        calls += 1
        if calls % 17 == 0:
            raise _CrashError
        append(self, *arguments)

    monkeypatch.setattr(StreamWriter, "append", crash_now_and_then)
    crashes, kept = 0, []
    while True:
        try:
            result = prepare(wanted, tmp_path / "disturbed", workers=1)
            break
        except _CrashError:
            crashes += 1
            assert not (tmp_path / "disturbed").exists()
            kept.append(len(list((tmp_path / "disturbed.partial").glob("part-*.json"))))
    assert crashes >= 2
    assert kept == sorted(set(kept))
    assert result.parts_kept == kept[-1]
    assert content(tmp_path / "disturbed") == content(tmp_path / "undisturbed")


def test_a_crash_during_the_final_rename_is_recovered(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("lightbert.data.staging.move_folder", _crash)
        with pytest.raises(_CrashError):
            prepare(settings(corpus), tmp_path / "out", workers=1)
    with pytest.raises(InputError, match="other settings: vocab_size"):
        prepare(settings(corpus, vocab_size=90), tmp_path / "out", workers=1)
    prepare(settings(corpus), tmp_path / "out", workers=1)
    prepare(settings(corpus), tmp_path / "other", workers=1)
    assert content(tmp_path / "out") == content(tmp_path / "other")


def test_a_setting_that_an_earlier_version_did_not_have_is_compared_by_its_default(corpus, tmp_path):
    now = resolve(settings(corpus), [], tmp_path / "out")
    before = {key: value for key, value in now.items() if key != "separator"}
    assert differences(before, now) == ""
    assert differences(before, {**now, "separator": ";"}) == "separator (',' before, ';' now)"


def test_a_finished_folder_is_left_unchanged_unless_settings_differ(corpus, tmp_path):
    first = prepare(settings(corpus), tmp_path / "out", workers=1)
    second = prepare(settings(corpus), tmp_path / "out", workers=1)
    assert second.manifest == first.manifest
    assert second.parts_kept == len(first.manifest.shards)
    with pytest.raises(InputError, match=r"other settings: held_out \(0\.1 before, 0\.2 now\); use the same"):
        prepare(settings(corpus, held_out=0.2), tmp_path / "out", workers=1)
    (corpus / "0.txt").write_text("Changed.")
    with pytest.raises(InputError, match="other settings: the input files"):
        prepare(settings(corpus), tmp_path / "out", workers=1)
    prepare(settings(corpus), tmp_path / "out", workers=1, again=True)
    assert Shards.open(tmp_path / "out").manifest.settings["inputs"][0][1] == 8


def test_unfinished_work_with_different_settings_is_an_input_error(corpus, tmp_path, monkeypatch):
    unfinished(settings(corpus), tmp_path / "out", monkeypatch)
    with pytest.raises(InputError, match=r"out\.partial' was prepared with other settings: sentences"):
        prepare(settings(corpus, sentences="split"), tmp_path / "out", workers=1)
    prepare(settings(corpus, sentences="split"), tmp_path / "out", workers=1, again=True)


def test_a_given_tokenizer_is_used_unchanged(corpus, tmp_path):
    prepare(settings(corpus), tmp_path / "first", workers=1)
    prepare(settings(corpus, tokenizer=str(tmp_path / "first")), tmp_path / "second", workers=1)
    first, second = content(tmp_path / "first"), content(tmp_path / "second")
    del first["manifest.json"], second["manifest.json"]
    assert first == second


def prepare_to(stage, wanted, out, monkeypatch):
    if stage == "finished":
        prepare(wanted, out, workers=1)
    else:
        unfinished(wanted, out, monkeypatch)


@pytest.mark.parametrize("stage", ["finished", "unfinished"])
def test_a_changed_tokenizer_is_an_input_error_that_names_it(corpus, tmp_path, monkeypatch, stage):
    first = tmp_path / "first"
    prepare(settings(corpus), first, workers=1)
    wanted = settings(corpus, tokenizer=str(first))
    prepare_to(stage, wanted, tmp_path / "out", monkeypatch)
    prepare(settings(corpus, vocab_size=70), first, workers=1, again=True)
    with pytest.raises(InputError, match=r"other settings: the content of the tokenizer '.*first'; .* or --again"):
        prepare(wanted, tmp_path / "out", workers=1)
    assert prepare(wanted, tmp_path / "out", workers=1, again=True).manifest.vocab == 70


@pytest.mark.parametrize("stage", ["finished", "unfinished"])
def test_the_same_tokenizer_in_a_new_file_is_not_a_change(corpus, tmp_path, monkeypatch, stage):
    path = tmp_path / "tokenizer.json"
    # Each reading changes the last digits of some of these scores.
    choose = random.Random(0)
    pieces = [(f"w{number}", -(10 ** choose.uniform(-30, 0))) for number in range(1000)]
    content = unigram([*((name, 0.0) for name in SPECIALS), *pieces], lowercase=True).to_str()
    read = Tokenizer.from_str(content).to_str()
    assert Tokenizer.from_str(read).to_str() != read
    path.write_text(content)
    wanted = settings(corpus, tokenizer=str(path))
    prepare_to(stage, wanted, tmp_path / "out", monkeypatch)
    path.write_text(json.dumps(json.loads(content), indent=3))
    assert prepare(wanted, tmp_path / "out", workers=1).tokens == 0


def test_texts_become_sentences_without_empty_documents_and_unpaired_surrogates(tmp_path):
    for name, text, changes, documents in (
        ("a.txt", "The cat runs. The dog sleeps.\n", {"sentences": "split"}, [["the cat runs.", "the dog sleeps."]]),
        ("b.txt", "\u200b\u0301\n\nreal text\n\u0301\n", {}, [["real text"]]),
        ("c.jsonl", '{"text": "fine \\ud800 text"}\n', {}, [["fine? text"]]),
    ):
        (tmp_path / name).write_text(text)
        prepare(settings(tmp_path / name, held_out=0.0, **changes), tmp_path / f"out-{name}", workers=1)
        assert decoded(tmp_path / f"out-{name}", "train") == documents


def test_docstrings_can_be_a_source(tmp_path, capsys):
    result = prepare(settings("docstrings:rich,typer"), tmp_path / "out", workers=1)
    reading = re.findall(r"^reading docstrings:rich,typer: (\S+)/(\S+) bytes.*taken$", capsys.readouterr().err, re.M)
    assert reading[-1][0] == reading[-1][1]
    assert sum(shard.tokens for shard in result.manifest.shards) > 1000
    assert not list((tmp_path / "out").glob("*.txt"))


def test_a_large_vocabulary_uses_four_bytes_per_token(tmp_path):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(70_000))]
    (tmp_path / "vocab.txt").write_text("\n".join(names))
    (tmp_path / "a.txt").write_text("w69999 w3")
    wanted = settings(tmp_path / "a.txt", tokenizer=str(tmp_path / "vocab.txt"), held_out=0.0)
    prepare(wanted, tmp_path / "out", workers=1)
    assert Shards.open(tmp_path / "out").document(0).tokens.tolist() == [70004, 8]


def test_bad_input_leaves_no_files(tmp_path):
    for text, changes, problem in (
        (b"", {}, "training a tokenizer requires text"),
        (b"good\n\nb\xffd", {}, r"line 3 of .* is not UTF-8 \(byte 0xff\)"),
        (b"one document", {"held_out": 0.999999}, "the train split must not be empty: all documents were held out"),
    ):
        (tmp_path / "a.txt").write_bytes(text)
        with pytest.raises(InputError, match=problem):
            prepare(settings(tmp_path / "a.txt", **changes), tmp_path / "out", workers=1)
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_sources_without_text_are_an_input_error(corpus, tmp_path):
    prepare(settings(corpus), tmp_path / "first", workers=1)
    (tmp_path / "a.txt").write_bytes(b"\n\n\n")
    wanted = settings(tmp_path / "a.txt", tokenizer=str(tmp_path / "first"))
    with pytest.raises(InputError, match="the train split must not be empty: the sources have no text"):
        prepare(wanted, tmp_path / "out", workers=1)
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("error", [InputError, _CrashError])
def test_work_without_a_shard_to_train_on_is_not_kept(corpus, tmp_path, monkeypatch, error):
    prepare(settings(corpus), tmp_path / "first", workers=1)
    held_out = settings(corpus, tokenizer=str(tmp_path / "first"), held_out=0.999999)
    with monkeypatch.context() as patch:
        if error is _CrashError:
            patch.setattr(preparation, "finish", _crash)
        with pytest.raises(error):
            prepare(held_out, tmp_path / "out", workers=1)
    assert (tmp_path / "out.partial").exists() == (error is _CrashError)
    prepare(replace(held_out, held_out=0.0), tmp_path / "out", workers=1)
    assert Shards.open(tmp_path / "out").n_documents == 200
    assert not (tmp_path / "out.partial").exists()


def test_held_out_documents_are_named_if_the_others_have_no_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": " "}\n{"text": "words"}\n')
    share = score(" ", b"held-out")
    assert score("words", b"held-out") < share
    with pytest.raises(InputError, match="all documents were held out; check the sources and --held-out"):
        prepare(settings(tmp_path / "a.jsonl", held_out=share), tmp_path / "out", workers=1)


def test_a_folder_with_other_files_is_never_changed(corpus):
    for name in ("", "0.txt"):
        for again in (False, True):
            before = content(corpus)
            with pytest.raises(InputError, match="exists and is not a prepared folder"):
                prepare(settings(corpus), corpus / name, workers=1, again=again)
            assert content(corpus) == before


@pytest.mark.parametrize("again", [False, True])
def test_sources_and_files_of_others_in_the_working_folder_are_never_removed(corpus, tmp_path, again):
    corpus.rename(tmp_path / "corpus.partial")
    before = content(tmp_path / "corpus.partial")
    for source in ("corpus.partial", "corpus.partial/0.txt", "corpus.partial/*.txt"):
        with pytest.raises(InputError, match=r"is in a folder that --out .* replaces; move it elsewhere"):
            prepare(settings(tmp_path / source), tmp_path / "corpus", workers=1, again=again)
        assert content(tmp_path / "corpus.partial") == before
    problem = r"out\.partial' exists and is not the working folder of a preparation; move it"
    for name in ("notes.txt", "settings.json", "train-a.bin", "train-00000-00000.tokens.bin", "lock"):
        (tmp_path / name / "out.partial").mkdir(parents=True)
        (tmp_path / name / "out.partial" / name).write_text('{"volume": 3}')
        with pytest.raises(InputError, match=problem):
            prepare(settings(tmp_path / "corpus.partial"), tmp_path / name / "out", workers=1, again=again)
        assert content(tmp_path / name / "out.partial") == {name: b'{"volume": 3}'}


def test_a_file_added_to_a_prepared_folder_is_never_removed(corpus, tmp_path):
    prepare(settings(corpus), tmp_path / "out", workers=1)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    before = content(tmp_path / "out")
    with pytest.raises(InputError, match=r"contains 'notes\.txt', which lightbert did not write"):
        prepare(settings(corpus, vocab_size=90), tmp_path / "out", workers=1, again=True)
    assert content(tmp_path / "out") == before


def test_a_prepared_folder_whose_replacement_was_killed_is_completed(corpus, tmp_path, monkeypatch):
    prepare(settings(corpus), tmp_path / "out", workers=1)
    wanted = settings(corpus, vocab_size=90)

    def crash(source, target):
        folder = target.with_name(".lightbert-999999999-abc")
        folder.mkdir()
        mark = {"writer": "lightbert", "host": socket.gethostname(), "pid": 999999999, "target": target.name}
        (folder / "lightbert.json").write_text(json.dumps(mark))
        target.replace(folder / "old")
        raise _CrashError

    with monkeypatch.context() as patch:
        patch.setattr("lightbert.data.staging.move_folder", crash)
        with pytest.raises(_CrashError):
            prepare(wanted, tmp_path / "out", workers=1, again=True)
    prepare(wanted, tmp_path / "out", workers=1)
    assert Shards.open(tmp_path / "out").manifest.settings["vocab_size"] == 90
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "out"]


def unfinished(wanted, out, monkeypatch):
    """Prepare all parts, but not the manifest."""
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "finish", _crash)
        with pytest.raises(_CrashError):
            prepare(wanted, out, workers=1)
    return out.with_name(f"{out.name}.partial")


def test_damage_of_unfinished_work_is_detected_in_every_file(corpus, tmp_path, monkeypatch):
    folder = unfinished(settings(corpus), tmp_path / "out", monkeypatch)
    files = sorted(path for path in folder.iterdir() if path.name != "tokenizer_config.json")
    assert len(files) > 10
    for path in files:
        whole = path.read_bytes()
        for broken in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[: len(whole) // 2]):
            path.write_bytes(broken)
            with pytest.raises(InputError, match=r"damaged|other settings"):
                prepare(settings(corpus), tmp_path / "out", workers=1)
        path.write_bytes(whole)
    (folder / "train-00000-00000.tokens.bin").unlink()
    with pytest.raises(InputError, match=r"tokens\.bin' is damaged or was edited .*; pass --again to start over"):
        prepare(settings(corpus), tmp_path / "out", workers=1)
    prepare(settings(corpus), tmp_path / "out", workers=1, again=True)


def test_an_edited_source_of_the_same_size_is_detected(corpus, tmp_path, monkeypatch):
    unfinished(settings(corpus), tmp_path / "out", monkeypatch)
    text = (corpus / "0.txt").read_text()
    (corpus / "0.txt").write_text(text[:-1] + "!")
    with pytest.raises(InputError, match="other settings: the input files"):
        prepare(settings(corpus), tmp_path / "out", workers=1)
    (corpus / "0.txt").write_text(text)
    prepare(settings(corpus), tmp_path / "out", workers=1)
    (corpus / "0.txt").write_text(text[:-1] + "!")
    with pytest.raises(InputError, match="other settings: the input files"):
        prepare(settings(corpus), tmp_path / "out", workers=1)


def test_pipes_and_places_that_cannot_be_written_are_input_errors_and_an_empty_folder_is_filled(corpus, tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    for wanted, out, workers, problem in (
        (settings(tmp_path / "a.txt"), tmp_path / "out", 1, "must be a regular file, because sources are read more"),
        (settings(corpus), corpus / "0.txt" / "out", 1, "cannot write"),
        (settings(corpus), tmp_path / "out", 0, "workers must be >= 1, got 0"),
    ):
        with pytest.raises(InputError, match=problem):
            prepare(wanted, out, workers=workers)
    (tmp_path / "out").mkdir()
    prepare(settings(corpus), tmp_path / "out", workers=1)
    Shards.open(tmp_path / "out")


@pytest.mark.parametrize("exists", [True, False])
def test_the_target_of_a_link_is_written_and_not_the_link(corpus, tmp_path, exists):
    target, link = tmp_path / "large" / "disk", tmp_path / "link"
    target.parent.mkdir()
    if exists:
        target.mkdir()
    link.symlink_to(target)
    prepare(settings(corpus), link, workers=1)
    prepare(settings(corpus, vocab_size=90), link, workers=1, again=True)
    assert link.is_symlink()
    assert Shards.open(target).manifest.settings["vocab_size"] == 90
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "large", "link"]
    assert [path.name for path in target.parent.iterdir()] == ["disk"]


def test_a_full_disk_keeps_finished_parts(corpus, tmp_path, monkeypatch):
    append, calls = StreamWriter.append, 0

    def fill_the_disk(self, *arguments):
        nonlocal calls
        calls += 1
        if calls == 20:
            raise OSError(28, "No space left on device")
        append(self, *arguments)

    monkeypatch.setattr(StreamWriter, "append", fill_the_disk)
    with pytest.raises(InputError, match="No space left on device; finished shards are kept"):
        prepare(settings(corpus), tmp_path / "out", workers=1)
    assert prepare(settings(corpus), tmp_path / "out", workers=1).parts_kept > 0


def test_a_folder_is_locked_against_concurrent_preparation(corpus, tmp_path):
    from lightbert.data.preparation import locked

    with (
        locked(tmp_path / "out.partial"),
        pytest.raises(InputError, match=r"process \d+ on \S+, started .+, is preparing '.*out\.partial'; wait for it"),
    ):
        prepare(settings(corpus), tmp_path / "out", workers=1)


def test_settings_out_of_range_are_input_errors(corpus):
    for changes in ({"held_out": 1.0}, {"held_out": -0.1}, {"streams": 0}, {"shard_characters": 0}):
        with pytest.raises(InputError, match=next(iter(changes))):
            settings(corpus, **changes)


def test_the_training_of_the_tokenizer_shows_its_progress(corpus, tmp_path, capsys):
    prepare(settings(corpus), tmp_path / "out", workers=1)
    lines = capsys.readouterr().err.splitlines()
    [line] = [line for line in lines if line.startswith("training the tokenizer: ")]
    done, total = re.findall(r"[\d,]+", line)[:2]
    assert done == total


def test_the_tokenizer_is_trained_in_the_announced_number_of_passes():
    texts = ["some words, more words", "other words"] * 20
    for model in ("wordpiece", "unigram"):
        seen = []
        watched = train(texts, model, 70, watch=lambda watched, seen=seen: (seen.append(t) or t for t in watched))
        assert len(seen) == PASSES[model] * len(texts)
        assert watched.to_str() == train(texts, model, 70).to_str()


def test_the_tokens_of_all_streams_are_counted_together(tmp_path, capsys):
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text("\n\n".join(f"some words {number} {i}" for i in range(40)))
    result = prepare(Settings(sources=(str(tmp_path),), vocab_size=90, streams=2), tmp_path / "out", workers=1)
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("encoding: ")]
    assert line.endswith(f"tokens {result.tokens:,}")
    assert result.tokens == sum(shard.tokens for shard in result.manifest.shards)


def test_the_current_folder_is_never_replaced(corpus, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out in (".", "..", "../here", ""):
        with pytest.raises(InputError, match="is the current folder or contains it"):
            prepare(settings(corpus), Path(out), workers=1)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "here"]


def test_a_parquet_file_that_is_not_utf8_leaves_no_files(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    texts = arrow.Array.from_buffers(
        arrow.string(), 2, [None, arrow.py_buffer(b"\0\0\0\0\3\0\0\0\5\0\0\0"), arrow.py_buffer(b"the\xff\xfe")]
    )
    write_parquet(tmp_path / "a.parquet", {"text": texts})
    with pytest.raises(InputError, match="is not UTF-8"):
        prepare(settings(tmp_path / "a.parquet"), tmp_path / "out", workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


DOCUMENTS = [f"document number {number} " + "x" * (number % 50) for number in range(2000)]
TOTAL = sum(map(len, DOCUMENTS))


def test_a_small_corpus_is_sampled_as_a_whole_and_a_large_one_uniformly_in_any_order():
    assert sample(DOCUMENTS, TOTAL, 0.0) == DOCUMENTS
    assert sample(DOCUMENTS, TOTAL, 0.1) == [text for text in DOCUMENTS if not is_held_out(text, 0.1)]
    kept = sample(DOCUMENTS, TOTAL // 3, 0.0)
    assert TOTAL / 6 < sum(map(len, kept)) <= TOTAL // 3
    halves = [sum(text in kept for text in half) for half in (DOCUMENTS[:1000], DOCUMENTS[1000:])]
    assert min(halves) > 0.8 * max(halves)
    assert sorted(sample(DOCUMENTS[::-1], TOTAL // 3, 0.0)) == sorted(kept)
    assert len(sample(DOCUMENTS, 10, 0.0)) == 1


def test_the_hashes_are_part_of_the_format():
    assert score("Some text.", b"held-out") == 0.6561922725569123
    assert sum(is_held_out(text, 0.1) for text in DOCUMENTS) / len(DOCUMENTS) == pytest.approx(0.1, abs=0.02)
