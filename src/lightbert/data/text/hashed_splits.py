"""Random splits and orders of texts that are the same on every machine: by hashes."""

import hashlib
from collections.abc import Mapping


def hashed_order(text: str) -> str:
    """A key that sorts texts in a random order."""
    return hashlib.sha256(text.encode()).hexdigest()


def hashed_part(name: str, shares: Mapping[str, int]) -> str:
    """The part that a name belongs to; each part gets its share of all names."""
    at, end = int(hashed_order(name)[:8], 16) / 2**32 * sum(shares.values()), 0
    for part, share in shares.items():
        end += share
        if at < end:
            return part
    raise AssertionError(at)
