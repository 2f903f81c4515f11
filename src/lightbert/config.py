"""Typed dataclasses from plain values, with `key=value` overrides.

An unknown key or a value of the wrong type raises an `InputError` with the dotted key, the value and the expected type.
"""

import dataclasses
import math
import re
import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from lightbert.errors import InputError, unknown
from lightbert.keys import bare, choices, hints, similar_keys
from lightbert.ranges import Range

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_SCALARS = {bool: "true or false", int: "an integer", float: "a number", str: "a string", Path: "a path"}

# Larger integers can't be converted to floats, and those of thousands of digits not even to text.
_MOST_BITS = 1000
_SHOWN = 200
"""Characters of a value in an error."""


def from_mapping(cls: type[T], mapping: Mapping[str, Any]) -> T:
    """Build a dataclass from plain values; nested tables become nested dataclasses, lists become tuples."""
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
        addition: Any = _parse(value.strip())
        for name in reversed(names):
            addition = {name: addition}
        result = override(result, addition)
    return result


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
