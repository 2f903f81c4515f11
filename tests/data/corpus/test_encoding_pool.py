"""Worker processes that can't be started or served end a preparation with a sentence and leave no processes."""

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import process
from pathlib import Path

import pytest

from lightbert import memory, worker_pool
from lightbert.data.corpus import tokenizer, vocabulary
from lightbert.data.corpus.encoding_pool import encode_chunks
from lightbert.data.corpus.parts import Chunk
from lightbert.errors import InputError

SENTENCE = r"a worker process died, perhaps because memory ran out; run the same command again with fewer --workers"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tokenizer.save(vocabulary.train(["the cat sat on the mat"], "wordpiece", 64), tmp_path)
    return tmp_path / tokenizer.FILE


def chunks(count: int) -> Iterator[Chunk[int]]:
    return (Chunk(["the cat"], number, ends_part=False) for number in range(count))


def test_a_pool_whose_thread_cannot_start_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(process._ExecutorManagerThread, "start", start)
    with pytest.raises(InputError, match=SENTENCE):
        list(encode_chunks(chunks(10), file, "line", 0.0, 2))
    assert multiprocessing.active_children() == []


@pytest.mark.timeout(120)
def test_a_pool_whose_thread_ends_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_SECONDS_BETWEEN_LOOKS", 0.2)
    monkeypatch.setattr(process._ExecutorManagerThread, "run", lambda _: None)
    with pytest.raises(InputError, match=SENTENCE):
        list(encode_chunks(chunks(10), file, "line", 0.0, 2))
    assert multiprocessing.active_children() == []


@pytest.mark.timeout(120)
def test_a_pool_whose_thread_fails_is_an_error_without_a_traceback(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    printed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    monkeypatch.setattr(worker_pool, "_SECONDS_BETWEEN_LOOKS", 0.2)
    monkeypatch.setattr(process._ExecutorManagerThread, "run", fail)
    with pytest.raises(InputError, match=SENTENCE):
        list(encode_chunks(chunks(10), file, "line", 0.0, 2))
    assert printed == []


def test_other_threads_still_report_their_errors(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    encoded = encode_chunks(chunks(10), file, "line", 0.0, 2)
    next(encoded)
    other = threading.Thread(target=lambda: 1 / 0)
    other.start()
    other.join()
    assert [each.exc_type for each in printed] == [ZeroDivisionError]
    assert len(list(encoded)) == 9
    assert threading.excepthook == printed.append


def test_all_chunks_are_encoded_in_order(file: Path) -> None:
    found = list(encode_chunks(chunks(10), file, "line", 0.0, 2))
    assert [chunk.mark for chunk, _ in found] == list(range(10))
    assert multiprocessing.active_children() == []


def test_under_a_limit_on_memory_one_worker_is_a_process_of_its_own(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "address_space_limit", lambda: 1 << 40)
    monkeypatch.setattr(process._ExecutorManagerThread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("none")))
    with pytest.raises(InputError, match=rf"{SENTENCE}, or with a higher `ulimit -v` than 1,073,741,824"):
        list(encode_chunks(chunks(1), file, "line", 0.0, 1))
