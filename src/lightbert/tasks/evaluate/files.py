"""An evaluation as files: the report for people and machines, and every prediction."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightbert.files import make_folder, write_atomic
from lightbert.tasks.datasets.glue.prediction_files import write_predictions
from lightbert.tasks.datasets.glue.table import TABLE
from lightbert.tasks.datasets.squad.submission import N_BEST, NULL_ODDS, PREDICTIONS, write_submission
from lightbert.tasks.evaluate.report import Evaluation
from lightbert.tasks.example import Question, Tagged
from lightbert.tasks.kinds.findings.texts import of_text


def write(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Write a folder, each file whole or not at all, and return the files.

    Where the answers are known: report.json and report.md. Always: predictions.jsonl, one line for each example. For
    SQuAD also its own files, and for a test set of GLUE the leaderboard's table, such as RTE.tsv. Others stay, so that
    one folder can hold the tables of all tasks.
    """
    folder = Path(folder)
    make_folder(folder)
    contents = {"predictions.jsonl": "".join(f"{line}\n" for line in _lines(evaluation))}
    if evaluation.metrics:
        contents["report.json"] = json.dumps(evaluation.to_json(), indent=2, ensure_ascii=False) + "\n"
        contents["report.md"] = evaluation.to_markdown()
    for name, content in contents.items():
        write_atomic(folder / name, content)
    written = [folder / name for name in contents]
    examples, predictions = evaluation.examples, evaluation.predictions
    if any(isinstance(example, Question) for example in examples):
        write_submission(folder, examples, predictions)
        return [*written, *(folder / name for name in (PREDICTIONS, NULL_ODDS, N_BEST))]
    if evaluation.task in TABLE and evaluation.split.startswith("test"):
        written.append(write_predictions(folder, evaluation.task, evaluation.split, examples, predictions))
    return written


def _lines(evaluation: Evaluation) -> Iterator[str]:
    for example, prediction in zip(evaluation.examples, evaluation.predictions, strict=True):
        yield json.dumps({**_asked(example), **prediction}, ensure_ascii=False)


def _asked(example: Any) -> dict[str, Any]:
    """What was asked, and the answer where that is known; a question's context is left to the task's own files."""
    match example:
        case Tagged():
            known = example.tags
            asked: dict[str, Any] = {"words": list(example.words)}
        case Question():
            known = None if example.answers is None else tuple(answer.text for answer in example.answers)
            asked = {"question": example.question}
        case _:
            known, asked = example.label, of_text(example)
    return {"id": example.id, **asked} | ({} if known is None else {"true": known})
