"""The comparison with a minimal loop over tokenizers; rates are not tested."""

import pytest

from benchmarks.preparation import compare
from lightbert.data import tokenizer
from lightbert.data.tokenizer import train


def test_both_ways_encode_the_same_tokens(tmp_path, monkeypatch):
    for name in ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "")
    texts = [f"A short document, number {number}.\nWith a second [SEP] line." for number in range(50)]
    tokenizer.save(train(texts, "wordpiece", 100), tmp_path)
    result = compare(texts, tmp_path, workers=1, rounds=2)
    assert result.tokens > 500
    assert result.ratio == pytest.approx(result.prepare / result.bare)
    assert f"ratio {result.ratio:.2f}" in str(result)
