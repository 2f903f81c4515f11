"""A part of the training data, set apart to judge by."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

from lightbert.errors import InputError
from lightbert.tasks.example import Example, Tagged

E = TypeVar("E", Example, Tagged)


def hold_out(examples: Sequence[E], share: float) -> tuple[list[E], list[E]]:
    """Part examples into those that stay and those held out: the ones whose texts have the smallest hashes.

    So the choice hangs neither on the order of the rows nor on a seed, hardly changes when rows are added, and keeps
    equal texts together, lest a text that was trained on is judged.
    """
    hashes = [_hash(example) for example in examples]
    limit = sorted(hashes)[max(1, round(share * len(examples))) - 1] if examples else 0
    stay = [example for example, each in zip(examples, hashes, strict=True) if each > limit]
    held = [example for example, each in zip(examples, hashes, strict=True) if each <= limit]
    if not stay:
        raise InputError(
            f"too few different texts ({len(set(hashes))}) to hold out {share:g} of them; give data.dev, or "
            "data.hold_out=0 to train without judging"
        )
    return stay, held


def _hash(example: Example | Tagged) -> int:
    texts = example.words if isinstance(example, Tagged) else (example.text, example.text_b or "")
    return int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest())
