"""How a model computes the vector of a text from the states of its tokens; doesn't import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lightbert.errors import InputError, unknown

Pool = Literal["mean", "cls", "max"]
POOLS: tuple[Pool, ...] = ("mean", "cls", "max")

PROJECTION = "vector"
"""The head that changes a pooled vector into one of another size."""


@dataclass(frozen=True)
class Pooling:
    """The vectors of a sentence encoder; saved in the files of sentence-transformers (`models/sentence_files.py`)."""

    pool: Pool = "mean"
    normalize: bool = False
    """Scale vectors to length 1."""
    length: int = 0
    """The maximum number of tokens of a text; 0: the positions of the model."""
    projection: bool = False
    """Whether the head "vector" computes the vectors from the pooled states; its `pool` is then this one."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Name -> the text before each text of a kind, such as {"query": "query: "}."""
    default_prompt: str = ""
    """The name of the prompt that is used if none is chosen; "" = none."""
    sizes: tuple[int, ...] = ()
    """The numbers of leading values that are vectors of their own (Matryoshka), besides the whole vector."""

    def prompt(self, name: str | None = None) -> str:
        """Return the prompt of this name, by default the default prompt; "" if there is none."""
        name = self.default_prompt if name is None else name
        if name and name not in self.prompts:
            raise unknown("prompt", name, self.prompts)
        return self.prompts[name] if name else ""

    def check_size(self, size: int, width: int) -> None:
        """Check that the first `size` values of vectors of this width are vectors."""
        if not 0 <= size <= width or (size and self.sizes and size not in (width, *self.sizes)):
            known = ", ".join(map(str, (width, *self.sizes)))
            expected = f"one of {known}, the sizes that the model was trained for" if self.sizes else f"1 to {width}"
            raise InputError(f"size must be {expected}, got {size}")
