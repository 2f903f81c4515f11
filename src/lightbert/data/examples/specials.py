"""The ids of a tokenizer's special tokens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightbert.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Specials:
    """The ids of the special tokens."""

    pad: int
    cls: int
    sep: int
    mask: int

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "Specials":
        """Look up the ids under BERT's or SentencePiece's names."""
        return cls(
            pad=_id(tokenizer, "[PAD]", "<pad>"),
            cls=_id(tokenizer, "[CLS]"),
            sep=_id(tokenizer, "[SEP]"),
            mask=_id(tokenizer, "[MASK]"),
        )


def _id(tokenizer: "Tokenizer", *names: str) -> int:
    for name in names:
        index = tokenizer.token_to_id(name)
        if index is not None:
            return index
    raise InputError(f"the tokenizer has no {names[0]} token; train one with `lightbert prepare` or add the token")
