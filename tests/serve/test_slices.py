"""A long request is computed in slices: others are answered in between, and its answer is that of one piece."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.serve.batching import Batcher, Limits, Metrics
from lightbert.serve.endpoints import MASK, Endpoint, Fill, Prepared

ENDPOINT: Any = SimpleNamespace(name="fill", runtime=SimpleNamespace(batch_tokens=(40, 100)))


def request(*lengths: int) -> Prepared:
    rows = [[number] * length for number, length in enumerate(lengths)]
    return Prepared(Features.of(rows, lengths), lambda outputs: [f"row {output}" for output in outputs])


class Worker:
    """Computes a row as its first token, one round at a time."""

    def __init__(self) -> None:
        self.rounds: list[list[int]] = []
        self.step = threading.Semaphore(0)
        self.batcher = Batcher(Limits(window=0.0001), Metrics(), self.compute)

    def compute(self, endpoint: Endpoint, requests: Sequence[Prepared]) -> list[list[Any]]:
        assert self.step.acquire(timeout=20)
        self.rounds.append([part.tokens for part in requests])
        return [part.finish(part.features.tokens[part.features.starts[:-1]].tolist()) for part in requests]


def test_short_requests_are_answered_between_the_slices_of_a_long_one() -> None:
    worker = Worker()
    lengths = [3, 9, 30, 9, 3, 9, 9]
    long = worker.batcher.submit(ENDPOINT, request(*lengths))
    worker.step.release()
    short = worker.batcher.submit(ENDPOINT, request(5))
    other = worker.batcher.submit(ENDPOINT, request(*lengths))
    worker.step.release(2)
    assert short.result(timeout=20) == ["row 0"]
    assert not long.done()
    worker.step.release(100)
    expected = [f"row {number}" for number in range(len(lengths))]
    assert long.result(timeout=20) == other.result(timeout=20) == expected
    worker.batcher.close()
    assert all(sum(part for part in parts) <= 35 for parts in worker.rounds)


def test_a_failing_slice_fails_its_request_only() -> None:
    worker = Worker()
    worker.step.release(100)
    failing = request(15, 15)
    object.__setattr__(failing, "finish", lambda outputs: 1 / 0)
    answers = [worker.batcher.submit(ENDPOINT, each) for each in (failing, request(15, 15), request(4))]
    with pytest.raises(ZeroDivisionError):
        answers[0].result(timeout=20)
    assert [answer.result(timeout=20) for answer in answers[1:]] == [["row 0", "row 1"], ["row 0"]]
    worker.batcher.close()


def test_the_numbers_of_masks_and_candidates_of_a_request_are_limited() -> None:
    encoder: Any = SimpleNamespace(specials=SimpleNamespace(mask=4))
    runtime: Any = SimpleNamespace(head="mlm", reads_padding=False, chunk=1)
    texts = [" ".join([MASK] * 126)] * 256
    fill = Fill(encoder, runtime)
    with pytest.raises(InputError, match=r"number of \[MASK\] must be at most 4,096 per request, got 32,256"):
        fill.prepare(texts, {"top": 1})
    with pytest.raises(InputError, match=r"times 'top' must be at most 20,480 per request, got 25,200"):
        fill.prepare(texts[:4], {"top": 50})


def test_the_best_tokens_are_those_of_a_complete_sort() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 3, 200)).astype(np.float32)
    runtime: Any = SimpleNamespace(
        head="mlm", reads_padding=False, chunk=1, submit=lambda ids, mask, segments: lambda: (logits,)
    )
    fill = Fill(SimpleNamespace(specials=SimpleNamespace(mask=4)), runtime)
    ids = np.full((2, 3), 4)
    expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    tokens, probabilities = fill.runtime.submit(ids, None, ids * 0)()
    assert (tokens == np.argsort(-expected, axis=-1)[..., :50]).all()
    np.testing.assert_allclose(probabilities, np.take_along_axis(expected, tokens, -1), rtol=1e-5)
