"""The kinds of task by name. A new kind is a class in a file of this folder, and a line in the table below."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from lightbert.tasks.kinds.kind import Kind

KINDS = {
    "classify": "lightbert.tasks.kinds.classify:Classify",
    "labels": "lightbert.tasks.kinds.classify:Labels",
    "regress": "lightbert.tasks.kinds.regress:Regress",
    "tokens": "lightbert.tasks.kinds.tokens:Tokens",
    "spans": "lightbert.tasks.kinds.spans:Spans",
}
"""Name -> class; of two kinds with the same head, the first is that of a model that doesn't specify its kind."""

KindName = Literal["auto", "classify", "labels", "regress", "tokens"]
"""The kinds of custom files; auto: inferred from the training data."""

# Keys of a description that are not arguments of the kind.
_OTHER_KEYS = ("kind", "task", "length", "pairs", "data")


def kind_class(name: str) -> "type[Kind[Any]]":
    """The class of a kind."""
    if name not in KINDS:
        raise unknown("kind of task", name, KINDS)
    module, _, class_name = KINDS[name].partition(":")
    kind: type[Kind[Any]] = getattr(importlib.import_module(module), class_name)
    return kind


def kind_of(description: Mapping[str, Any]) -> "Kind[Any]":
    """Create a kind from its description, such as `model.task`."""
    name = str(description.get("kind", ""))
    kind = kind_class(name)
    # JSON turns tuples into lists.
    arguments = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in description.items()
        if key not in _OTHER_KEYS
    }
    try:
        return kind(**arguments)
    except TypeError as error:
        raise InputError(f"invalid arguments for a task of kind {name!r}, {arguments}: {error}") from None


def task_heads() -> tuple[str, ...]:
    """The heads of all kinds, in the order in which one is chosen if a model has several."""
    return tuple(dict.fromkeys(head for name in KINDS for head in kind_class(name).heads))
