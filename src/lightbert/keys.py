"""The keys of a dataclass: ranges, descriptions, defaults, and whether a resumed run may change them.

They are written in the annotation: ``keep: Annotated[Size, MAY_CHANGE, "checkpoints to keep"] = 2``. A subclass that
changes only the default of a field inherits the rest.
"""

import dataclasses
import inspect
import json
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from lightbert.errors import nearest
from lightbert.ranges import Range


class _Marker(Enum):
    MAY_CHANGE = "may change"


MAY_CHANGE = _Marker.MAY_CHANGE
"""Marks a key that may change when a run is resumed, because it affects results by rounding at most."""


@cache
def hints(cls: type) -> dict[str, Any]:
    """Return the type of each field, with the annotations of the nearest class that has any."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        noted = [each for each in _declared(cls, name) if get_origin(each) is Annotated]
        inherits = get_origin(hint) is not Annotated and noted
        found[name] = Annotated[hint, *noted[0].__metadata__] if inherits else hint
    return found


def _declared(cls: type, name: str) -> list[Any]:
    """The type hints of a field in the class and its bases, in method resolution order."""
    bases = [base for base in cls.__mro__ if name in inspect.get_annotations(base)]
    return [get_type_hints(base, include_extras=True)[name] for base in bases]


def bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Split a type hint into the type and its annotations."""
    if get_origin(hint) is Annotated:
        return hint.__origin__, hint.__metadata__
    return hint, ()


def choices(hint: Any) -> list[str]:
    """Return the values of a `Literal` as they are written in a recipe."""
    return [json.dumps(value) if isinstance(value, bool) else str(value) for value in get_args(hint)]


def may_change(cls: type) -> frozenset[str]:
    """Return the keys marked with `MAY_CHANGE`."""
    return frozenset(name for name, hint in hints(cls).items() if MAY_CHANGE in bare(hint)[1])


@dataclass(frozen=True)
class Key:
    """A key with its dotted name."""

    name: str
    default: Any
    allowed: str
    """The range of a number or the choices of a string; "" if there are none."""
    meaning: str
    group: str
    """The first line of the docstring of the class that declares the key."""

    @property
    def default_text(self) -> str:
        """The default in TOML; "none" if there is none."""
        if self.default is None:
            return "none"
        whole = isinstance(self.default, float) and self.default >= 1000 and self.default.is_integer()
        return json.dumps(int(self.default) if whole else self.default)


def keys(cls: type) -> list[Key]:
    """Return all keys of a dataclass; the keys of a class precede those of its bases."""
    order = [base.__name__ for base in cls.__mro__]
    found = [key for field in dataclasses.fields(cls) for key in _keys_of(cls, field)]
    return [key for name in order for declared, key in found if declared == name]


def _keys_of(cls: type, field: "dataclasses.Field[Any]", defaults: Any = None) -> Iterator[tuple[str, Key]]:
    """The key of a field, or the keys of its dataclass, each with the name of the declaring class.

    A field that accepts both a single value and a table yields both. defaults: an instance with the default values.
    """
    first = next(base for base in reversed(cls.__mro__) if field.name in inspect.get_annotations(base))
    group = (first.__doc__ or "").partition("\n")[0].rstrip(".")
    hint, notes = bare(hints(cls)[field.name])
    default = getattr(defaults, field.name) if defaults is not None else _default(field)
    options = [bare(option)[0] for option in get_args(hint)] if _is_union(hint) else [hint]
    nested: Any = next((option for option in options if dataclasses.is_dataclass(option)), None)
    if nested is None or len(options) > 1:
        meaning = next((note for note in notes if isinstance(note, str)), "")
        yield first.__name__, Key(field.name, _plain(default), _allowed(hint, notes), meaning, group)
    if nested is not None:
        instance = default if dataclasses.is_dataclass(default) else None
        for inner in dataclasses.fields(nested):
            for _, key in _keys_of(nested, inner, instance):
                yield first.__name__, replace(key, name=f"{field.name}.{key.name}", group=group)


def meant_keys(cls: type, name: str) -> list[str]:
    """Return the keys with this name: the key itself, the key it is an alias of, or keys that end with it.

    The aliases of a class are in its attribute `aliases`.
    """
    names = [key.name for key in keys(cls)]
    last = name.rpartition(".")[2]
    for certain in (name, getattr(cls, "aliases", {}).get(last)):
        if certain in names:
            return [certain]
    return [key for key in names if key.rpartition(".")[2] == last]


def similar_keys(cls: type, name: str) -> list[str]:
    """Return the suggestions for an unknown key: those of `meant_keys`, or the most similar key."""
    names = [key.name for key in keys(cls)]
    siblings = [key for key in names if key.rpartition(".")[0] == name.rpartition(".")[0]]
    found = nearest(name, siblings) or nearest(name, names)
    return meant_keys(cls, name) or ([found] if found else [])


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _allowed(hint: Any, notes: tuple[Any, ...]) -> str:
    for option in get_args(hint) if _is_union(hint) else ():
        inner, more = bare(option)
        if found := _allowed(inner, more):
            return found
    if get_origin(hint) is Literal:
        return ", ".join(choices(hint))
    return next((str(note) for note in notes if isinstance(note, Range)), "")
