"""The kinds of task by name, one file each."""

import importlib
from collections.abc import Mapping
from typing import Any

from lightbert.errors import InputError, unknown
from lightbert.tasks.kinds.kind import Kind

_KINDS = {
    "classify": ("lightbert.tasks.kinds.classify.kind", "Classify"),
    "labels": ("lightbert.tasks.kinds.labels.kind", "Labels"),
    "regress": ("lightbert.tasks.kinds.regress.kind", "Regress"),
    "tokens": ("lightbert.tasks.kinds.tokens.kind", "Tokens"),
    "spans": ("lightbert.tasks.kinds.spans.kind", "Spans"),
}

# What a model's description says beside its kind.
_OTHERS = ("kind", "task", "length", "pairs")


def kind_of(description: Mapping[str, Any]) -> Kind[Any]:
    """Make the kind that a description, such as `model.task`, speaks of."""
    name = description.get("kind", "")
    if name not in _KINDS:
        raise unknown("kind of task", str(name), _KINDS)
    module, class_name = _KINDS[name]
    # JSON has no tuples.
    arguments = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in description.items()
        if key not in _OTHERS
    }
    try:
        kind: Kind[Any] = getattr(importlib.import_module(module), class_name)(**arguments)
    except TypeError as error:
        raise InputError(f"a task of the kind {name!r} cannot be made of {arguments}: {error}") from None
    return kind
