"""Dataclasses from plain values: type-checked, with `key=value` overrides.

A mistyped key or a value of the wrong type is an `InputError` that names the dotted key, the value and the expectation.
"""

import dataclasses
import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}


def from_mapping(cls: type[T], mapping: Mapping[str, Any]) -> T:
    """Build a dataclass from plain values; nested tables become nested dataclasses, lists become tuples."""
    return _build(cls, mapping, prefix="")


def to_mapping(obj: "DataclassInstance") -> dict[str, Any]:
    """Turn a dataclass into plain values that JSON can hold; `from_mapping` is the inverse."""
    return {field.name: _plain(getattr(obj, field.name)) for field in dataclasses.fields(obj) if field.init}


def override(mapping: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return a copy of `mapping` with assignments such as `optimizer.lr=1e-4`, `sizes=[1, 2]` or `out=runs/x` applied.

    Values are written as in TOML; what TOML cannot parse, a bare word or a path, is a text.
    """
    result = dict(mapping)
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        names = key.strip().split(".")
        if not equals or not all(names):
            raise InputError(f"cannot read the override {assignment!r}; write key=value, such as steps=100")
        addition: Any = _parse(value.strip())
        for name in reversed(names):
            addition = {name: addition}
        _refuse_a_table_in_place_of_a_value(result, names, assignment)
        result = merge(result, addition)
    return result


def merge(base: Mapping[str, Any], addition: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `addition`; tables that both have are merged key by key."""
    result = dict(base)
    for key, value in addition.items():
        both_tables = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merge(result[key], value) if both_tables else value
    return result


def _refuse_a_table_in_place_of_a_value(mapping: Mapping[str, Any], names: list[str], assignment: str) -> None:
    table: Any = mapping
    for depth, name in enumerate(names[:-1], start=1):
        table = table.get(name, {})
        if not isinstance(table, Mapping):
            outer = ".".join(names[:depth])
            raise InputError(f"cannot apply {assignment!r}: '{outer}' is {table!r}, which has no keys of its own")


def _parse(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = parsed.pop("value")
    # A text with line breaks could smuggle in further keys, and dates have no place in a config.
    return value if not parsed and isinstance(value, bool | int | float | str | list | dict) else text


def _build(cls: type[T], mapping: Any, prefix: str) -> T:
    if not isinstance(mapping, Mapping):
        raise _mismatch(prefix.rstrip("."), mapping, "a table")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in mapping:
        if key not in fields:
            raise unknown("key", f"{prefix}{key}", [f"{prefix}{name}" for name in fields])
    hints = get_type_hints(cls)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in mapping:
            raise InputError(f"the key '{prefix}{name}' is missing; set it to {_expected(hints[name])}")
    return cls(**{name: _convert(value, hints[name], f"{prefix}{name}") for name, value in mapping.items()})


def _convert(value: Any, hint: Any, key: str) -> Any:
    """Return `value` as the type that `hint` asks for, or raise the error that names `key`."""
    origin, arguments = get_origin(hint), get_args(hint)
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
    # The type is compared too, because 1 == True and 1 == 1.0.
    if origin is Literal and any(type(value) is type(choice) and value == choice for choice in arguments):
        return value
    if origin is Literal and isinstance(value, str):
        raise unknown(key, value, [str(choice) for choice in arguments])
    if hint is float and type(value) is int:
        return float(value)
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if hint in (bool, int, float, str, types.NoneType) and type(value) is hint:
        return value
    raise _mismatch(key, value, _expected(hint))


def _convert_to_one_of(value: Any, hints: tuple[Any, ...], key: str, expected: str) -> Any:
    if value is None and types.NoneType in hints:
        return None
    possible = [hint for hint in hints if hint is not types.NoneType]
    if isinstance(value, Mapping):
        # A table can only be meant for the hint that has keys: its own error says which key is wrong.
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


def _mismatch(key: str, value: Any, expected: str) -> InputError:
    return InputError(f"'{key}' must be {expected}, not {value!r}")


def _expected(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if hint is types.NoneType:
        return "nothing"
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_expected(argument) for argument in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"a list of {len(arguments)} values ({', '.join(_expected(argument) for argument in arguments)})"
    if origin is tuple:
        return f"a list, each item {_expected(arguments[0])}"
    return "a table"
