"""Rename tables: data that says what a tensor of ours is called, and how it lies, in another library's checkpoint.

A table is read from our side in both directions: the model knows which of its tensors exist, a row gives each one its
name on the other side, and every row's reshaping has an inverse. Whatever is left over on either side is an error.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lightbert.errors import InputError


@dataclass(frozen=True)
class Row:
    """One line of a table. `{names}` stand for one dotted part of our name and are copied into theirs."""

    ours: str
    theirs: str
    reshaping: str = "same"


@dataclass(frozen=True)
class TiedCopy:
    """A tensor of theirs that repeats another one (tied weights): checked and dropped, never written."""

    theirs: str
    original: str


@dataclass(frozen=True)
class PositionIds:
    """A buffer of theirs that counts 0, 1, 2, … (position ids of old checkpoints): checked and dropped."""

    theirs: str


@dataclass(frozen=True)
class Keymap:
    """A whole table. The first row that matches a name of ours is the one that holds."""

    rows: tuple[Row, ...]
    redundant: tuple[TiedCopy | PositionIds, ...] = ()

    def pairs(self, ours: Iterable[str], **constants: int) -> dict[str, tuple[str, str]]:
        """Their name and the reshaping for each name of ours; `constants` fill placeholders such as `{last}` first."""
        ours = list(ours)
        patterns = [(_pattern(row.ours, constants), row) for row in self.rows]
        found: dict[str, tuple[str, str]] = {}
        for name in ours:
            for pattern, row in patterns:
                if match := pattern.fullmatch(name):
                    found[name] = (row.theirs.format(**match.groupdict(), **constants), row.reshaping)
                    break
        if missing := sorted(set(ours) - set(found)):
            raise InputError(f"the other library has no place for {quote_names(missing)}")
        theirs = [name for name, _ in found.values()]
        if twice := sorted({name for name in theirs if theirs.count(name) > 1}):
            raise InputError(f"the other library has one place for two of our tensors: {quote_names(twice)}")
        return found

    def to_ours(self, theirs: Mapping[str, Tensor], like: Mapping[str, Tensor], **constants: int) -> dict[str, Tensor]:
        """Their tensors under our names, the extra ones left out; `like` has the names and shapes to fill."""
        rest = self._without_redundant(theirs)
        pairs = self.pairs(like, **constants)
        if missing := sorted({name for name, _ in pairs.values()} - set(rest)):
            raise InputError(
                f"the checkpoint lacks {quote_names(missing)}; it is incomplete or its config is another's"
            )
        result = {}
        for name, (their, how) in pairs.items():
            tensor, expected = rest.pop(their), RESHAPINGS[how].to_theirs(like[name]).shape
            if tensor.shape != expected:
                raise InputError(
                    f"'{their}' has the shape {list(tensor.shape)} where the config asks for {list(expected)}"
                )
            result[name] = RESHAPINGS[how].to_ours(tensor).contiguous()
        if rest:
            raise InputError(
                f"the checkpoint has tensors that this model has no place for: {quote_names(sorted(rest))}"
            )
        return result

    def to_theirs(self, ours: Mapping[str, Tensor], **constants: int) -> dict[str, Tensor]:
        """Our tensors under their names. Spare ones are not written: the other library makes them again."""
        pairs = self.pairs(ours, **constants)
        return {their: RESHAPINGS[how].to_theirs(ours[name]) for name, (their, how) in pairs.items()}

    def _without_redundant(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rest = dict(theirs)
        for extra in self.redundant:
            if extra.theirs not in rest:
                continue
            tensor = rest.pop(extra.theirs)
            if isinstance(extra, PositionIds):
                _check_position_ids(extra.theirs, tensor)
            elif not torch.equal(tensor, rest.setdefault(extra.original, tensor)):
                raise InputError(
                    f"'{extra.theirs}' differs from '{extra.original}', to which it should be tied; "
                    "lightbert has one tensor for both"
                )
        return rest


@dataclass(frozen=True)
class Reshaping:
    """A way to lay the same numbers out, and its inverse."""

    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor]


RESHAPINGS = {
    "same": Reshaping(lambda x: x, lambda x: x),
    # [out, in] <-> [in, out]
    "transpose": Reshaping(lambda x: x.T, lambda x: x.T),
    # [D, K] <-> [D, 1, K]
    "depthwise": Reshaping(lambda x: x.squeeze(1), lambda x: x.unsqueeze(1)),
    # [out, in] <-> [out, in, 1] and [D] <-> [D, 1]
    "trailing": Reshaping(lambda x: x.squeeze(-1), lambda x: x.unsqueeze(-1)),
    # [D, K] <-> [K, D, 1] and [out, in] <-> [1, in, out], the two parts of TensorFlow's separable convolution
    "separable depthwise": Reshaping(lambda x: x.squeeze(-1).T, lambda x: x.T.unsqueeze(-1)),
    "separable pointwise": Reshaping(lambda x: x.squeeze(0).T, lambda x: x.T.unsqueeze(0)),
}


def quote_names(names: list[str], most: int = 4) -> str:
    """Names for a sentence, cut short when there are many."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _pattern(ours: str, constants: Mapping[str, int]) -> re.Pattern[str]:
    for name, value in constants.items():
        ours = ours.replace(f"{{{name}}}", str(value))
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^.]+)", re.escape(ours)))


def _check_position_ids(name: str, tensor: Tensor) -> None:
    if not torch.equal(tensor.flatten(), torch.arange(tensor.numel(), dtype=tensor.dtype)):
        raise InputError(f"'{name}' does not count 0, 1, 2, …; lightbert numbers positions in order")
