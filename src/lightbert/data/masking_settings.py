"""Masking settings: the `masking.*` keys of a recipe."""

from dataclasses import dataclass
from typing import Annotated

from lightbert.config import Range, Share, Size, check
from lightbert.errors import InputError


@dataclass(frozen=True)
class Masking:
    """How many tokens are masked, and how. The defaults are ELECTRA's, without random tokens.

    In a row with n tokens, including special tokens but not padding, `rate`·n tokens are chosen, rounded half to even
    and at least 1. A share `masked` of them is replaced by [MASK], a share `random` by any id of the vocabulary; the
    rest is unchanged. All chosen tokens are predicted. `most` is the maximum number per row; None means ELECTRA's
    maximum, half a percentage point above the rate.
    Deviation: ELECTRA samples positions with replacement (electra#41), and the composite paper samples each token
    independently; here the number is exact and positions are distinct.
    """

    rate: Annotated[float, Range(0, 1, closed="neither"), "the share of tokens to predict"] = 0.15
    masked: Annotated[Share, "of those, the share replaced by [MASK]"] = 0.85
    random: Annotated[Share, "of those, the share replaced by a random token; the rest is kept. BERT: 0.8, 0.1"] = 0.0
    most: Annotated[Size | None, "the maximum number of predictions per row"] = None

    def __post_init__(self) -> None:
        check(self)
        if self.masked + self.random > 1:
            raise InputError(f"masked + random must be <= 1, got {self.masked} + {self.random}; BERT has 0.8 + 0.1")

    def positions(self, length: int) -> int:
        """Return P, the most predictions of a row of `length` columns."""
        return min(length, self.most or max(1, int((self.rate + 0.005) * length)))


BERT = Masking(masked=0.8, random=0.1)
