"""The texts of an analysis as rows of tokens: those to draw, and those to compute statistics over."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lightbert.data.features import Specials
from lightbert.data.sources import ReadOptions, documents, find
from lightbert.data.text_files import check_decoded
from lightbert.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_DRAWN_OF_DATA = 1


@dataclass(frozen=True)
class Texts:
    """Texts from the command line (`given`), which must fit, and from files (`data`), which are truncated to fit."""

    given: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def drawn(self) -> tuple[str, ...]:
        """The texts to draw: the given ones, otherwise the first of the data."""
        return self.given or self.data[:_DRAWN_OF_DATA]

    @property
    def measured(self) -> tuple[str, ...]:
        """The texts to compute statistics over: the data, otherwise the given ones."""
        return self.data or self.given


def read_texts(given: Sequence[str], data: str, *, column: str = "text", most: int = 1000) -> Texts:
    """Collect texts; of `data`, a file or folder with one text per line or record, the first `most`."""
    for text in given:
        if not text.strip():
            raise InputError(f"the text {text!r} has no tokens; give a sentence")
    if not data:
        return Texts(tuple(given))
    options = ReadOptions(text=column, documents="line")
    texts = (text for source in find([data]) for text, _ in documents(source, options) if text.strip())
    read = list(islice(texts, most + 1))
    if not read:
        raise InputError(f"'{data}' has no texts; give a file with one text per line")
    notes = (f"The statistics cover the first {most:,} texts of '{data}'; raise --max-texts for more.",)
    return Texts(tuple(given), tuple(read[:most]), notes if len(read) > most else ())


class RowEncoder:
    """Encodes texts as [CLS] text [SEP] with at most `longest` tokens; 0 = any number."""

    def __init__(self, tokenizer: "Tokenizer", longest: int) -> None:
        from tokenizers import Tokenizer as _Tokenizer

        # A copy, because the tokenizer of a model may be configured to truncate and pad.
        self.tokenizer = _Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.longest = longest
        self._specials = Specials.of(self.tokenizer)

    def pieces(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        check_decoded(text)
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def row(self, text: str, *, truncate: bool = False) -> list[int]:
        """The ids of a text with special tokens; too long a text is truncated or raises an error."""
        pieces = self.pieces(text)
        if not pieces:
            raise InputError(f"the text {text!r} has no tokens; give a sentence")
        if truncate and self.longest:
            pieces = pieces[: self.longest - 2]
        ids = [self._specials.cls, *pieces, self._specials.sep]
        if 0 < self.longest < len(ids):
            raise InputError(
                f"the text must have at most {self.longest} tokens, got {len(ids)}; give a shorter one, or raise "
                "--length as far as the model allows"
            )
        return ids

    def tokens(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The tokens of ids, to label plots."""
        return tuple(self.tokenizer.id_to_token(token) or "" for token in ids)
