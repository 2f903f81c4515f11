"""Typed dataclasses from plain values, with `key=value` overrides, and what their annotations say about the keys.

An unknown key or a value of the wrong type raises an `InputError` with the dotted key, the value and the expected type.
Ranges, descriptions, and whether a resumed run may change a key are written in the annotation:
``keep: Annotated[Size, MAY_CHANGE, "checkpoints to keep"] = 2``. A subclass that changes only the default of a field
inherits the rest.
"""

import dataclasses
import inspect
import json
import math
import re
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from lightbert.errors import InputError, nearest, unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_SCALARS = {bool: "true or false", int: "an integer", float: "a number", str: "a string", Path: "a path"}

# Larger integers can't be converted to floats, and those of thousands of digits not even to text.
_MOST_BITS = 1000
_SHOWN = 200
"""Characters of a value in an error."""

LARGEST_DEPTH = 1000
LARGEST_DIMENSION = 2**24
LARGEST = 2**53
"""The largest integer of a key; integers up to it are exact in JSON and in floating-point arithmetic."""


@dataclass(frozen=True)
class Range:
    """An interval from `low` to `high`; `closed` names the endpoints that it includes."""

    low: float = -math.inf
    high: float = math.inf
    closed: Literal["both", "left", "right", "neither"] = "both"

    @property
    def _is_technical(self) -> bool:
        """Whether the upper limit only excludes absurd values; messages name it only if it is exceeded."""
        return self.high in (LARGEST_DEPTH, LARGEST_DIMENSION, LARGEST)

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.closed in ("both", "left") else value > self.low
        below = value <= self.high if self.closed in ("both", "right") else value < self.high
        return above and below

    def __str__(self) -> str:
        left, right = self.closed in ("both", "left"), self.closed in ("both", "right")
        if math.isinf(self.high) or self._is_technical:
            return f"{'>=' if left else '>'} {self.low}"
        if math.isinf(self.low):
            return f"{'<=' if right else '<'} {self.high}"
        return f"in {'[' if left else '('}{self.low}, {self.high}{']' if right else ')'}"

    def check(self, key: str, value: float) -> None:
        """Raise an error that names `key` unless `value` is in the range."""
        if value > self.high and self._is_technical:
            raise InputError(f"{key} must be <= {self.high}, got {value}")
        if value not in self:
            raise InputError(f"{key} must be {self}, got {value}")


Count = Annotated[int, Range(0, LARGEST)]
Size = Annotated[int, Range(1, LARGEST)]
Dimension = Annotated[int, Range(1, LARGEST_DIMENSION)]
"""A size of a model."""
OptionalDimension = Annotated[int, Range(0, LARGEST_DIMENSION)]
Depth = Annotated[int, Range(1, LARGEST_DEPTH)]
Threads = Annotated[int, Range(0, 1024)]
Seed = Annotated[int, Range(0, 2**63, closed="left")]
NonNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, closed="neither")]
Share = Annotated[float, Range(0, 1)]
"""A fraction, including 0 and 1."""
PositiveShare = Annotated[float, Range(0, 1, closed="right")]
PartialShare = Annotated[float, Range(0, 1, closed="left")]
"""A fraction less than 1, such as a dropout rate."""


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
        yield (
            first.__name__,
            Key(
                field.name,
                list(default) if isinstance(default, tuple) else default,
                _allowed(hint, notes),
                meaning,
                group,
            ),
        )
    if nested is not None:
        instance = default if dataclasses.is_dataclass(default) else None
        for inner in dataclasses.fields(nested):
            for _, key in _keys_of(nested, inner, instance):
                yield first.__name__, replace(key, name=f"{field.name}.{key.name}", group=group)


def meant_keys(cls: type, name: str) -> list[str]:
    """Return the keys with this name: the key itself, those it is an alias of, or keys that end with it.

    The aliases of a class are in its attribute `aliases`, each for one key or several.
    """
    names = [key.name for key in keys(cls)]
    last = name.rpartition(".")[2]
    meant = getattr(cls, "aliases", {}).get(last, ())
    for certain in ([name], [meant] if isinstance(meant, str) else meant):
        if found := [key for key in certain if key in names]:
            return found
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


def from_mapping(cls: type[T], mapping: Mapping[str, Any]) -> T:
    """Build a dataclass from plain values; nested tables become nested dataclasses, lists become tuples.

    A class method `prepare_mapping` of the dataclass can change the values first.
    """
    prepare = getattr(cls, "prepare_mapping", None)
    mapping = prepare(mapping) if prepare else mapping
    try:
        return _build(cls, mapping, prefix="")
    except _UnknownKeyError as error:
        raise _unknown_key(cls, error.key, error.siblings) from None


def to_mapping(obj: "DataclassInstance") -> dict[str, Any]:
    """Convert a dataclass to JSON-serializable values; `from_mapping` is the inverse."""
    return {field.name: _plain(getattr(obj, field.name)) for field in dataclasses.fields(obj) if field.init}


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Parse assignments such as `optimizer.lr=1e-4`, `sizes=[1, 2]` or `out=runs/x` into one mapping.

    Values are TOML; anything that isn't valid TOML, such as a bare word or a path, is a string.
    """
    result: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        names = key.strip().split(".")
        if not equals or not all(names):
            raise InputError(f"can't parse {text!r}; write key=value, such as steps=100")
        result = override(result, nested(names, _parse(value.strip())))
    return result


def nested(names: Iterable[str], value: Any) -> Any:
    """Return a value in tables within each other, the first name outermost."""
    for name in reversed([*names]):
        value = {name: value}
    return value


def override(base: Mapping[str, Any], addition: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `addition` into `base`; a table can't replace a single value."""
    _check_tables(base, addition, prefix="")
    return merge(base, addition)


def merge(base: Mapping[str, Any], addition: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `addition`; tables in both are merged recursively."""
    result = dict(base)
    for key, value in addition.items():
        both_tables = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merge(result[key], value) if both_tables else value
    return result


def check(obj: "DataclassInstance") -> None:
    """Check the numbers of a dataclass against the ranges of its fields; for `__post_init__`.

    `from_mapping` checks them as well, with the dotted names of nested keys.
    """
    for field in dataclasses.fields(obj):
        _check_numbers(getattr(obj, field.name), hints(type(obj))[field.name], field.name)


class Checked:
    """Base of dataclasses whose numbers are checked against the ranges of their fields."""

    def __post_init__(self) -> None:
        check(self)  # type: ignore[arg-type]


def check_texts(obj: "DataclassInstance", prefix: str = "") -> None:
    """Check that the texts of a dataclass can be names of files: no NUL and no unpaired surrogates."""
    for field in dataclasses.fields(obj):
        value, key = getattr(obj, field.name), f"{prefix}{field.name}"
        if isinstance(value, str) and re.search("[\0\ud800-\udfff]", value):
            raise InputError(f"{key} must not contain NUL or unpaired surrogates, got {value!r}")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            check_texts(value, f"{key}.")


def _check_tables(base: Mapping[str, Any], addition: Mapping[str, Any], prefix: str) -> None:
    for name, value in addition.items():
        if isinstance(value, Mapping) and name in base:
            if not isinstance(base[name], Mapping):
                first = next(iter(value), "")
                key = f"{prefix}{name}"
                raise InputError(f"can't set '{key}.{first}': '{key}' is {base[name]!r}, not a table")
            _check_tables(base[name], value, f"{prefix}{name}.")


def _parse(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    except ValueError:
        raise InputError(f"the value {text[:20]}… has too many digits; write a smaller number") from None
    except RecursionError:
        raise InputError(f"the value {text[:20]}… is nested too deeply; write a flat value") from None
    value = parsed.pop("value")
    # A text with line breaks can contain further keys, and configs have no dates.
    return value if not parsed and isinstance(value, bool | int | float | str | list | dict) else text


class _UnknownKeyError(Exception):
    def __init__(self, key: str, siblings: list[str]) -> None:
        self.key, self.siblings = key, siblings


def _build(cls: type[T], mapping: Any, prefix: str) -> T:
    if not isinstance(mapping, Mapping):
        raise _mismatch(prefix.rstrip("."), mapping, "a table")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in mapping:
        if key not in fields:
            raise _UnknownKeyError(f"{prefix}{key}", [f"{prefix}{name}" for name in fields])
    types_of = hints(cls)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in mapping:
            raise InputError(f"the key '{prefix}{name}' is required; set it to {_expected(types_of[name])}")
    for name, value in mapping.items():
        _check_key_of_text(name, value, types_of, prefix)
    values = {name: _convert(value, types_of[name], f"{prefix}{name}") for name, value in mapping.items()}
    for name, value in values.items():
        _check_numbers(value, types_of[name], f"{prefix}{name}")
    return cls(**values)


def _check_key_of_text(name: str, value: Any, types_of: Mapping[str, Any], prefix: str) -> None:
    """Suggest the longer key that takes text, such as generator_model, if a number's key is given a text."""
    expected, _ = bare(types_of[name])
    if expected not in (int, float) or not isinstance(value, str):
        return
    for other, hint in types_of.items():
        if other.startswith(f"{name}_") and bare(hint)[0] is str:
            error = _mismatch(f"{prefix}{name}", value, _expected(expected))
            raise InputError(f"{error}; did you mean '{prefix}{other}'?")


def _convert(value: Any, hint: Any, key: str) -> Any:
    """Convert `value` to the type `hint`, or raise an error that names `key`."""
    hint, _ = bare(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if type(value) is int and value.bit_length() > _MOST_BITS:
        raise InputError(f"{key} must be a number of at most {_MOST_BITS} bits, got {value.bit_length():,} bits")
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else _build(hint, value, prefix=f"{key}.")
    if origin in (Union, types.UnionType):
        return _convert_to_one_of(value, arguments, key, expected=_expected(hint))
    if origin is tuple and isinstance(value, list | tuple):
        return _convert_items(value, arguments, key, expected=_expected(hint))
    if origin is dict and isinstance(value, Mapping):
        return {name: _convert(item, arguments[1], f"{key}.{name}") for name, item in value.items()}
    # Types are compared as well, because 1 == True and 1 == 1.0.
    if origin is Literal and any(type(value) is type(choice) and value == choice for choice in arguments):
        return value
    if origin is Literal and isinstance(value, str):
        raise unknown(key, value, choices(hint))
    if hint is float and type(value) is int:
        return float(value)
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if hint in (bool, int, float, str, types.NoneType) and type(value) is hint:
        return value
    raise _mismatch(key, value, _expected(hint))


def _check_numbers(value: Any, hint: Any, key: str) -> None:
    """Check that numbers are finite and in the range of their annotation."""
    hint, notes = bare(hint)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{key} must be a finite number, got {value}")
    if isinstance(value, int | float):
        for note in notes:
            if isinstance(note, Range):
                note.check(key, value)
    if get_origin(hint) in (Union, types.UnionType):
        # At most one member of a union with a range is a number.
        for option in get_args(hint):
            _check_numbers(value, option, key)
    if get_origin(hint) is tuple and isinstance(value, tuple):
        first, *_ = options = get_args(hint)
        for index, item in enumerate(value):
            _check_numbers(item, first if options[-1] is Ellipsis else options[index], f"{key}[{index}]")


def _convert_to_one_of(value: Any, hints: tuple[Any, ...], key: str, expected: str) -> Any:
    # Recipes and the command line have no other word for it.
    if types.NoneType in hints and (value is None or (value == "none" and str not in hints)):
        return None
    possible = [hint for hint in hints if hint is not types.NoneType]
    if isinstance(value, Mapping):
        # Only a dataclass accepts a table; its error names the wrong key.
        possible = [hint for hint in possible if dataclasses.is_dataclass(hint)] or possible
    if len(possible) == 1:
        return _convert(value, possible[0], key)
    for hint in possible:
        try:
            return _convert(value, hint, key)
        except InputError:
            continue
    raise _mismatch(key, value, expected)


def _convert_items(value: Any, hints: tuple[Any, ...], key: str, expected: str) -> tuple[Any, ...]:
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise _mismatch(key, value, expected)
    return tuple(
        _convert(item, hint, f"{key}[{index}]") for index, (item, hint) in enumerate(zip(value, hints, strict=True))
    )


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_mapping(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value


def _unknown_key(cls: type, key: str, siblings: list[str]) -> InputError:
    meant = similar_keys(cls, key)
    if not meant:
        return unknown("key", key, siblings)
    *most, last = map(repr, meant)
    return InputError(f"unknown key {key!r}; did you mean {', '.join(most)}{' or ' if most else ''}{last}?")


def _mismatch(key: str, value: Any, expected: str) -> InputError:
    try:
        shown = repr(value)
    except ValueError:
        # Python doesn't write integers of thousands of digits, such as those of a list.
        shown = "a number with too many digits"
    return InputError(f"{key} must be {expected}, got {shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}…'}")


def _expected(hint: Any) -> str:
    hint, _ = bare(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if hint is types.NoneType:
        return "nothing"
    if origin is Literal:
        named = zip(arguments, choices(hint), strict=True)
        return "one of " + ", ".join(repr(choice) if isinstance(choice, str) else name for choice, name in named)
    if origin in (Union, types.UnionType):
        return " or ".join(_expected(argument) for argument in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"a list of {len(arguments)} values ({', '.join(_expected(argument) for argument in arguments)})"
    if origin is tuple:
        return f"a list, each item {_expected(arguments[0])}"
    return "a table"


def without_nan(value: Any) -> Any:
    """Replace numbers that are not finite by None, because JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
