"""A TOML writer; the standard library has a reader only."""

import json
import re
from collections.abc import Mapping
from typing import Any


def to_toml(values: Mapping[str, Any]) -> str:
    """Write values as TOML: single values first, then tables; `tomllib.loads` is the inverse.

    TOML has no null: keys whose value is None are left out.
    """
    return "\n".join(_lines(values)) + "\n"


def _lines(values: Mapping[str, Any], path: str = "") -> list[str]:
    single = {key: value for key, value in values.items() if value is not None and not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {to_toml_value(value)}" for key, value in single.items()]
    for key, value in values.items():
        if isinstance(value, Mapping):
            name = f"{path}{_key(key)}"
            # A table that contains only tables needs no header.
            own = [] if value and all(isinstance(inner, Mapping) for inner in value.values()) else ["", f"[{name}]"]
            lines += [*own, *_lines(value, f"{name}.")]
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def to_toml_value(value: Any) -> str:
    """Write a single value; a table is written on one line."""
    if isinstance(value, Mapping):
        kept = {key: inner for key, inner in value.items() if inner is not None}
        return "{ " + ", ".join(f"{_key(key)} = {to_toml_value(inner)}" for key, inner in kept.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_toml_value, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _text(text: str) -> str:
    # TOML accepts JSON's escapes, but also requires one for the delete character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
