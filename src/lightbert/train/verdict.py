"""Whether a pre-trained model beats the trivial baseline, in words."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lightbert.data.shards import Shards

# Enough for the frequencies of a vocabulary, and counted in a second.
_MOST_TOKENS = 10_000_000


def verdict(metrics: Mapping[str, float], data: str) -> str:
    """Compare held-out metrics with a baseline that ignores the text; "" if there is nothing to compare.

    For replaced-token detection, the baseline predicts "original" for every token. For masked-language modelling, it
    predicts the frequencies of the training tokens.
    data: the prepared folder of the run.
    """
    if "replaced" in metrics:
        return _rtd_verdict(metrics)
    if "mlm_loss" in metrics:
        return _mlm_verdict(metrics["mlm_loss"], unigram_loss(Shards(data), Shards(data, "held-out")))
    return ""


def unigram_loss(train: Shards, held_out: Shards) -> float:
    """The cross-entropy of held-out tokens under the frequencies of the training tokens, with add-one smoothing."""
    seen, expected = (_counts(shards) for shards in (train, held_out))
    log_frequencies = np.log(seen + 1) - np.log((seen + 1).sum())
    return float(-(expected * log_frequencies).sum() / expected.sum())


def _counts(shards: Shards) -> NDArray[np.int64]:
    """The number of occurrences of each id among the first tokens."""
    counts, left = np.zeros(shards.vocab, dtype=np.int64), _MOST_TOKENS
    for shard in shards.shards:
        counts += np.bincount(shard.tokens[:left], minlength=shards.vocab)
        left -= min(left, len(shard.tokens))
    return counts


def _rtd_verdict(metrics: Mapping[str, float]) -> str:
    accuracy, baseline = metrics["rtd_accuracy"], 1 - metrics["replaced"]
    compared = f"accuracy {accuracy:.4f}, baseline {baseline:.4f}"
    if accuracy > baseline:
        return (
            f"The model beats the baseline that predicts 'original' for every token: {compared}; it detects "
            f"{metrics['rtd_recall']:.0%} of the replaced tokens, and {metrics['rtd_precision']:.0%} of the tokens "
            "that it flags are replaced."
        )
    return (
        f"The model doesn't beat the baseline that predicts 'original' for every token: {compared}. Train it for more "
        "steps or on more text before fine-tuning it."
    )


def _mlm_verdict(loss: float, baseline: float) -> str:
    compared = f"loss {loss:.4f}, baseline {baseline:.4f}"
    if loss < baseline:
        return f"The model beats the baseline that predicts token frequencies: {compared}."
    return (
        f"The model doesn't beat the baseline that predicts token frequencies: {compared}. Train it for more steps or "
        "on more text before fine-tuning it."
    )
