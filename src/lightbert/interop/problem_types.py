"""transformers' `problem_type`: what the outputs of a classifier mean, which its weights cannot tell."""

from typing import Any

from lightbert.errors import InputError, unknown
from lightbert.interop.families import Heads
from lightbert.interop.heads import default_label_names

_REGRESSION = "regression"
_MULTI_LABEL = "multi_label_classification"
_KINDS = {"single_label_classification": "classify", _MULTI_LABEL: "labels"}
"""Problem -> the kind of task that a model with the classification head answers."""


def read_problem(problem: str | None, heads: Heads, labels: tuple[str, ...]) -> dict[str, Any]:
    """What a model's `task` says of the problem; nothing where it is open, or where the head tells it.

    transformers leaves it open until a classifier has learned from its first batch.
    """
    if problem is None or not {"classify", "regress"} & set(heads):
        return {}
    if problem != _REGRESSION and problem not in _KINDS:
        raise unknown("problem_type", problem, [_REGRESSION, *_KINDS])
    outputs = heads["classify"]["labels"] if "classify" in heads else 1
    if problem == (_MULTI_LABEL if outputs == 1 else _REGRESSION):
        count = "one output" if outputs == 1 else f"{outputs} outputs"
        raise InputError(f"lightbert has no head for the problem_type {problem!r} with {count}; save the body")
    if outputs == 1:
        return {}
    return {"kind": _KINDS[problem], "labels": list(labels or default_label_names(outputs))}


def write_problem(heads: Heads, task: dict[str, Any]) -> str | None:
    """The `problem_type` of a model with these heads and this `task`; None where it is open."""
    if "regress" in heads:
        return _REGRESSION
    said = (problem for problem, kind in _KINDS.items() if kind == task.get("kind"))
    return next(said, None) if "classify" in heads else None
