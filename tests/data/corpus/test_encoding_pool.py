"""Chunks are encoded in order; workers that die end a preparation with a sentence and leave no processes."""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightbert.data.corpus import encoding_pool, tokenizer, vocabulary
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


def test_all_chunks_are_encoded_in_order(file: Path) -> None:
    found = list(encode_chunks(chunks(10), file, "line", 0.0, 2))
    assert [chunk.mark for chunk, _ in found] == list(range(10))
    assert multiprocessing.active_children() == []


def die(*_: object) -> None:
    os._exit(1)


def test_workers_that_die_end_the_preparation_with_a_sentence(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_pool, "_start", die)
    with pytest.raises(InputError, match=SENTENCE):
        list(encode_chunks(chunks(10), file, "line", 0.0, 2))
    assert multiprocessing.active_children() == []
