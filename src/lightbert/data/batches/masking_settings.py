"""How many tokens are masked and what becomes of them: the `masking.*` keys of a recipe."""

from dataclasses import dataclass
from typing import Annotated

from lightbert.config import check
from lightbert.errors import InputError
from lightbert.ranges import Range, Share, Size


@dataclass(frozen=True)
class Masking:
    """How many tokens are chosen and what becomes of them. The default is ELECTRA's: never a random token.

    Of a row with n real tokens, specials counted, `rate`·n are chosen, rounded half to even, at least 1; `masked` of
    them turn into [MASK], `random` into any id of the vocabulary, and the rest stay. All are predicted.
    `most` caps the choice; None stands for ELECTRA's cap, half a percent above the rate.
    Deviation: ELECTRA draws positions with replacement (electra#41), the composite paper each token by itself; here
    the number is exact and no position comes twice.
    """

    rate: Annotated[float, Range(0, 1, closed="neither"), "the share of tokens to predict"] = 0.15
    masked: Annotated[Share, "of those, the share that turns into [MASK]"] = 0.85
    random: Annotated[Share, "of those, the share that turns into a random token; the rest stays. BERT: 0.8, 0.1"] = 0.0
    most: Annotated[Size | None, "the most predictions per row"] = None

    def __post_init__(self) -> None:
        check(self)
        if self.masked + self.random > 1:
            raise InputError(f"masked + random must be <= 1, got {self.masked} + {self.random}; BERT has 0.8 + 0.1")

    def positions(self, length: int) -> int:
        """Return P, the most predictions of a row of `length` columns."""
        return min(length, self.most or max(1, int((self.rate + 0.005) * length)))


BERT = Masking(masked=0.8, random=0.1)
