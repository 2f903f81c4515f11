"""Read and write transformers' `problem_type`: single-label, multi-label or regression."""

from typing import Any

from lightbert.errors import InputError, unknown
from lightbert.interop.families import Heads
from lightbert.interop.heads import default_label_names

_REGRESSION = "regression"
_MULTI_LABEL = "multi_label_classification"
_KINDS = {"single_label_classification": "classify", _MULTI_LABEL: "labels"}
"""`problem_type` -> the kind of task of a model with the classification head."""


def read_problem(problem: str | None, heads: Heads, labels: tuple[str, ...]) -> dict[str, Any]:
    """Return a model's `task` for a `problem_type`; empty if it is None, or if the head determines it.

    transformers sets `problem_type` when a classifier is trained on its first batch.
    """
    if problem is None or not {"classify", "regress"} & set(heads):
        return {}
    if problem != _REGRESSION and problem not in _KINDS:
        raise unknown("problem_type", problem, [_REGRESSION, *_KINDS])
    outputs = heads["classify"]["labels"] if "classify" in heads else 1
    if problem == (_MULTI_LABEL if outputs == 1 else _REGRESSION):
        count = "one output" if outputs == 1 else f"{outputs} outputs"
        raise InputError(
            f"lightbert doesn't support problem_type {problem!r} with {count}; save the model without its head"
        )
    if outputs == 1:
        return {}
    return {"kind": _KINDS[problem], "labels": list(labels or default_label_names(outputs))}


def write_problem(heads: Heads, task: dict[str, Any]) -> str | None:
    """Return the `problem_type` of a model with these heads and this `task`; None if it is undetermined."""
    if "regress" in heads:
        return _REGRESSION
    matching = (problem for problem, kind in _KINDS.items() if kind == task.get("kind"))
    return next(matching, None) if "classify" in heads else None
