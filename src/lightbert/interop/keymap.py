"""Keymaps: tables of the names and layouts of our tensors in another library's checkpoint.

One table serves both directions: each row maps one of our names to the other library's name, and its reshaping has an
inverse. A tensor without a row, on either side, is an error.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lightbert.errors import InputError


@dataclass(frozen=True)
class Row:
    """One row of a keymap. A `{placeholder}` matches one dotted component of our name and is copied into theirs."""

    ours: str
    theirs: str
    reshaping: str = "same"


@dataclass(frozen=True)
class TiedCopy:
    """A tensor of theirs that is a copy of another one (tied weights): checked, then dropped, never written."""

    theirs: str
    original: str


@dataclass(frozen=True)
class PositionIds:
    """A buffer 0, 1, 2, … (position ids of old checkpoints): checked, then dropped, never written."""

    theirs: str


@dataclass(frozen=True)
class Keymap:
    """A table of rows; the first row that matches one of our names applies."""

    rows: tuple[Row, ...]
    redundant: tuple[TiedCopy | PositionIds, ...] = ()

    def pairs(self, ours: Iterable[str], **constants: int) -> dict[str, tuple[str, str]]:
        """Return their name and the reshaping for each of our names; `constants` replace placeholders like `{last}`."""
        ours = list(ours)
        patterns = [(_pattern(row.ours, constants), row) for row in self.rows]
        pairs: dict[str, tuple[str, str]] = {}
        for name in ours:
            for pattern, row in patterns:
                if match := pattern.fullmatch(name):
                    pairs[name] = (row.theirs.format(**match.groupdict(), **constants), row.reshaping)
                    break
        if missing := sorted(set(ours) - set(pairs)):
            raise InputError(f"the other library has no tensor for {quote_names(missing)}")
        theirs = [name for name, _ in pairs.values()]
        if twice := sorted({name for name in theirs if theirs.count(name) > 1}):
            raise InputError(f"two of our tensors map to the same tensor of the other library: {quote_names(twice)}")
        return pairs

    def to_ours(self, theirs: Mapping[str, Tensor], like: Mapping[str, Tensor], **constants: int) -> dict[str, Tensor]:
        """Return their tensors under our names, without redundant ones; `like` has the expected names and shapes."""
        rest = self._without_redundant(theirs)
        pairs = self.pairs(like, **constants)
        if missing := sorted({name for name, _ in pairs.values()} - set(rest)):
            raise InputError(f"the weights don't match the config: {quote_names(missing)} missing")
        result = {}
        for name, (their, how) in pairs.items():
            tensor, expected = rest.pop(their), RESHAPINGS[how].to_theirs(like[name]).shape
            if tensor.shape != expected:
                raise InputError(
                    f"the weights don't match the config: '{their}' must have the shape {list(expected)}, "
                    f"got {list(tensor.shape)}"
                )
            result[name] = RESHAPINGS[how].to_ours(tensor).contiguous()
        if rest:
            raise InputError(f"the weights don't match the config: {quote_names(sorted(rest))} unexpected")
        return result

    def to_theirs(self, ours: Mapping[str, Tensor], **constants: int) -> dict[str, Tensor]:
        """Return our tensors under their names, without redundant ones, which the other library recreates."""
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
                    f"'{extra.theirs}' must equal '{extra.original}', because lightbert ties them; "
                    "untied weights are not supported"
                )
        return rest


class Reshaping(NamedTuple):
    """A change of layout and its inverse."""

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


def quote_names(names: list[str], limit: int = 4) -> str:
    """Quote and join names for a message; list at most `limit` of them."""
    shown = ", ".join(f"'{name}'" for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def _pattern(ours: str, constants: Mapping[str, int]) -> re.Pattern[str]:
    for name, value in constants.items():
        ours = ours.replace(f"{{{name}}}", str(value))
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^.]+)", re.escape(ours)))


def _check_position_ids(name: str, tensor: Tensor) -> None:
    if not torch.equal(tensor.flatten(), torch.arange(tensor.numel(), dtype=tensor.dtype)):
        raise InputError(f"'{name}' must be 0, 1, 2, …; lightbert supports no other position ids")
