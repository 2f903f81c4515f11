"""Tables of pairs of texts, of pairs with a score, and of single texts, to train vectors on."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from lightbert.data.tables import Table
from lightbert.errors import InputError
from lightbert.tasks.datasets.own_files import Files, hold_out
from lightbert.tasks.example import Example, Examples
from lightbert.tasks.kinds.kind import Task, parse_number
from lightbert.tasks.kinds.vectors import Triple, Vectors

TASKS = ("vectors-pairs", "vectors-graded", "vectors-texts")


def vectors_task(name: str, files: Files) -> Task:
    """Open the files of "vectors-pairs", "vectors-graded" or "vectors-texts"; the training file is read at once.

    Without `data.dev`, a part of the training file is held out, except of single texts, for which there is no metric.
    """
    if not files.train:
        raise InputError(f"{name} requires data.train=FILE")
    loss: Any = name.removeprefix("vectors-")
    train = read_pairs(files.train, files, loss)
    prompts = (_prompt(files.prompt), _prompt(files.prompt_b))
    kind = Vectors(loss, texts=3 if files.negative and loss == "pairs" else 2, prompts=prompts)
    if loss == "graded":
        numbers = [float(str(example.label)) for example in train]
        kind = replace(kind, low=min(numbers), high=max(numbers))
        if kind.low == kind.high:
            raise InputError(f"the scores in '{files.train}' must differ, got {kind.low:g} in all rows")
    splits: dict[str, Callable[[], list[Any]]] = {"train": lambda: Examples(train, train.skipped)}
    if files.dev:
        splits["dev"] = partial(read_pairs, files.dev, files, "graded" if loss == "texts" else loss)
    elif files.hold_out and loss != "texts":
        held = hold_out(train, files.hold_out)
        splits |= {"train": lambda: held[0], "dev": lambda: held[1]}
    return Task(name, kind, splits, kind.metric_names(None, ())[0])  # type: ignore[arg-type]


def read_pairs(path: str, files: Files, loss: str) -> Examples[Example]:
    """Read the rows of a table; an example's label is its score, or the weight of a pair."""
    needed = {"data.text": files.text}
    if loss != "texts":
        needed["data.text_b"] = files.text_b or "text_b"
    if loss == "pairs" and files.negative:
        needed["data.negative"] = files.negative
    texts = len(needed)
    if loss == "graded":
        needed["data.label"] = files.label
    elif loss == "pairs" and files.weight:
        needed["data.weight"] = files.weight
    examples: Examples[Example] = Examples()
    with Table(path, needed, files.table_options()) as table:
        for number, row in table:
            cells = [row[column] for column in needed.values()]
            is_text = [isinstance(cell, str) and cell.strip() for cell in cells[:texts]]
            bad = next((key for key, good in zip(needed, is_text, strict=False) if not good), "")
            value = parse_number(cells[texts]) if len(cells) > texts else 1.0
            if bad:
                table.reject(number, f"must have a text in column {needed[bad]!r}, got {row[needed[bad]]!r}")
            elif value is None or (loss == "pairs" and value < 0):
                column = list(needed.values())[texts]
                kind = "a number" if loss == "graded" else "a weight >= 0"
                table.reject(number, f"has {cells[texts]!r} in column {column!r}, which must be {kind}")
            elif texts == 3:
                examples.append(Triple(cells[0], cells[1], value, str(number), negative=cells[2]))
            else:
                second = cells[1] if texts == 2 else None
                examples.append(Example(cells[0], second, value, str(number)))
        table.require_some(len(examples))
        examples.skipped = table.skipped
    return examples


def _prompt(text: str) -> str:
    """A prompt ends with a space, which the command line strips."""
    return f"{text.rstrip()} " if text.strip() else ""
