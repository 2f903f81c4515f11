"""The kinds of task by name, one folder each."""

import importlib
from collections.abc import Mapping
from typing import Any

from lightbert.errors import InputError, unknown
from lightbert.tasks.kinds.kind import Kind

_KINDS = {
    "classify": ("lightbert.tasks.kinds.classify", "Classify"),
    "labels": ("lightbert.tasks.kinds.classify", "Labels"),
    "regress": ("lightbert.tasks.kinds.regress", "Regress"),
    "tokens": ("lightbert.tasks.kinds.tokens", "Tokens"),
    "spans": ("lightbert.tasks.kinds.spans", "Spans"),
}

# Keys of a description that are not arguments of the kind.
_OTHER_KEYS = ("kind", "task", "length", "pairs", "data")


def kind_of(description: Mapping[str, Any]) -> Kind[Any]:
    """Create a kind from its description, such as `model.task`."""
    name = description.get("kind", "")
    if name not in _KINDS:
        raise unknown("kind of task", str(name), _KINDS)
    module, class_name = _KINDS[name]
    # JSON turns tuples into lists.
    arguments = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in description.items()
        if key not in _OTHER_KEYS
    }
    try:
        kind: Kind[Any] = getattr(importlib.import_module(module), class_name)(**arguments)
    except TypeError as error:
        raise InputError(f"invalid arguments for a task of kind {name!r}, {arguments}: {error}") from None
    return kind
