"""Tiny models with task heads, like fine-tuned models but with random weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from vocabularies import small_tokenizer

from lightbert.models import PRESETS, Model, build, folder
from lightbert.nn.pooling_settings import Pooling
from lightbert.tasks.kinds.kind import Kind


def tiny_model(kind: Kind[Any] | None, head: str = "", *, length: int = 16, **settings: Any) -> Model:
    """A model fine-tuned for a kind; with None, a model that only has a head, like an imported one."""
    sizes = {"vocab": 13, "positions": 16, "narrow": 8, "width": 16, "depth": 1, "inner": 32}
    heads = {kind.head: {**kind.head_settings(), **settings}} if kind is not None else {head: settings}
    model = build(replace(PRESETS["convbert-tiny"], **sizes), heads=heads if kind is not None or head else {}, seed=0)
    model.tokenizer = small_tokenizer()
    if kind is not None:
        model.task = {**kind.description(), "task": "own", "length": length}
        model.labels = tuple(getattr(kind, "labels", ()))
    return model.eval()


def write_vector_model(where: Path) -> Path:
    """Save a model for vectors, with prompts for queries and for passages."""
    model = tiny_model(None)
    model.pooling = Pooling("max", prompts={"query": "bad ", "passage": "good "})
    folder.save(model, where)
    return where


def write_tiny_model(where: Path, *arguments: Any, **settings: Any) -> Path:
    """Save such a model to a folder."""
    folder.save(tiny_model(*arguments, **settings), where)
    return where
