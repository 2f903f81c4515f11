"""Hold out a part of the training data for evaluation."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

from lightbert.errors import InputError
from lightbert.tasks.example import Example, Examples, TaggedSentence

E = TypeVar("E", Example, TaggedSentence)


def hold_out(examples: Sequence[E], share: float) -> tuple[Examples[E], Examples[E]]:
    """Split examples into training and held-out ones; the texts with the smallest hashes are held out.

    So the split depends neither on the order of the rows nor on a seed, hardly changes when rows are added, and keeps
    duplicates together: no held-out text occurs in the training data. Skipped rows of the file count for both parts.
    """
    hashes = [_hash(example) for example in examples]
    limit = sorted(hashes)[max(1, round(share * len(examples))) - 1] if examples else 0
    skipped = examples.skipped if isinstance(examples, Examples) else 0
    train = Examples((example for example, each in zip(examples, hashes, strict=True) if each > limit), skipped)
    held = Examples((example for example, each in zip(examples, hashes, strict=True) if each <= limit), skipped)
    if not train:
        raise InputError(
            f"holding out {share:g} of the texts requires more distinct texts, got {len(set(hashes))}; give "
            "data.dev, or data.hold_out=0 to train without evaluation"
        )
    return train, held


def _hash(example: Example | TaggedSentence) -> int:
    texts = example.words if isinstance(example, TaggedSentence) else (example.text, example.text_b or "")
    return int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest())
