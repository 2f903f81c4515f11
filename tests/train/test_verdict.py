"""The comparison of a pre-trained model with trivial baselines."""

from pathlib import Path

import numpy as np
import pytest

from lightbert.data.shards import Shards
from lightbert.train import corpus_run as module
from lightbert.train.corpus_run import unigram_loss, verdict

RTD = {"replaced": 0.1, "rtd_recall": 0.25, "rtd_precision": 0.5}


@pytest.mark.parametrize(("accuracy", "beats"), [(0.91, True), (0.9, False), (0.8, False)])
def test_replaced_token_detection_is_compared_with_always_original(accuracy: float, beats: bool) -> None:
    sentence = verdict({"rtd_accuracy": accuracy, **RTD}, "unused")
    assert f"accuracy {accuracy:.4f}, baseline 0.9000" in sentence
    assert ("The model beats the baseline" in sentence) is beats
    assert ("The model doesn't beat the baseline" in sentence) is not beats
    assert ("detects 25% of the replaced tokens" in sentence) is beats


def test_the_unigram_loss_is_the_cross_entropy_of_smoothed_frequencies(corpus: Path) -> None:
    train, held_out = Shards(corpus / "data"), Shards(corpus / "data", "held-out")
    tokens = [np.concatenate([shard.tokens for shard in shards.shards]) for shards in (train, held_out)]
    frequencies = (np.bincount(tokens[0], minlength=train.vocab) + 1) / (len(tokens[0]) + train.vocab)
    expected = -np.mean([np.log(frequencies[token]) for token in tokens[1]])
    assert unigram_loss(train, held_out) == pytest.approx(expected, rel=1e-9)


def test_only_the_first_tokens_are_counted(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_TOKENS", 7)
    assert module._counts(Shards(corpus / "data")).sum() == 7


def test_masked_language_modelling_is_compared_with_token_frequencies(corpus: Path) -> None:
    data = str(corpus / "data")
    baseline = unigram_loss(Shards(data), Shards(data, "held-out"))
    assert verdict({"mlm_loss": baseline - 0.1}, data).startswith("The model beats the baseline that predicts token")
    assert verdict({"mlm_loss": baseline}, data).startswith("The model doesn't beat the baseline")


def test_without_held_out_metrics_there_is_no_verdict() -> None:
    assert verdict({}, "unused") == ""
