"""The commands as Python functions: keyword arguments are the command's keys, the result is its report."""

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.commands.recipes import command_words, read_recipe
from lightbert.config import from_mapping
from lightbert.errors import InputError
from lightbert.files import write_atomic

if TYPE_CHECKING:
    from lightbert.commands.finetune import FinetuningReport
    from lightbert.commands.pretrain import TrainingReport
    from lightbert.commands.report import Printable, Report


def prepare(sources: str | Path | Iterable[str | Path], out: str | Path, **keys: Any) -> "Report":
    """Turn text into a tokenizer and token shards, like `lightbert prepare`.

    sources: a file, a folder, a pattern such as ``"my/*.txt"``, or several. keys: the options of the command, such as
    ``vocab_size=8192``.
    """
    from lightbert.commands.prepare import Config, run

    several = [sources] if isinstance(sources, str | Path) else list(sources)
    return run(from_mapping(Config, {"sources": [str(source) for source in several], "out": out, **_plain(keys)}))


def pretrain(recipe: str | Path, **keys: Any) -> "TrainingReport | Report":
    """Pre-train an encoder on prepared text, like `lightbert pretrain`, or resume an interrupted run.

    recipe: the name of a recipe or a TOML file. keys: values that override it; tables are dicts, such as
    ``optimizer={"beta2": 0.98}``. ``seeds`` and ``grid`` run every combination, and return the means.
    """
    return _train("pretrain", str(recipe), keys)


def distill(recipe: str | Path, **keys: Any) -> "TrainingReport | Report":
    """Distil a large encoder into a small one, like `lightbert distill`; see `pretrain` for the arguments."""
    return _train("distill", str(recipe), keys)


def _train(verb: str, recipe: str, keys: Mapping[str, Any]) -> "TrainingReport | Report":
    from lightbert.commands.pretrain import planned, run_all

    values = _plain(keys)
    return run_all(planned(verb, recipe, values), command_words(verb, recipe, values))


def finetune(recipe: str | Path, **keys: Any) -> "FinetuningReport":
    """Fine-tune an encoder on a task, like `lightbert finetune`; see `pretrain` for the arguments.

    ``data`` is a folder, a table, or a dict such as ``{"train": "my.csv", "text": "body", "label": "topic"}``, whose
    files can be tables, too: DataFrames of pandas or polars, or lists of dicts, which are saved in ``out``. ``seeds``,
    ``tasks`` and ``grid`` run every combination.
    """
    from lightbert.commands.finetune import run
    from lightbert.tasks.finetune.plan import plan

    values = _plain(_with_saved_tables(keys))
    return run(plan(read_recipe("finetune", str(recipe)), values), command_words("finetune", str(recipe), values))


def evaluate(model: str | Path | None = None, **keys: Any) -> "Printable":
    """Evaluate a model, or a file of predictions, on a task, like `lightbert evaluate`.

    keys: the options of the command, such as ``data="test.csv"``, ``text="body"``, ``label="topic"``.
    """
    from lightbert.commands.evaluate import Config, run

    return run(from_mapping(Config, _plain({"model": model, **keys})))


def _with_saved_tables(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Replace tables among the data by files; by default ``out`` is named after their content."""
    data = keys.get("data")
    data = data if isinstance(data, Mapping) else {"train": data}
    tables = {split: lines for split, value in data.items() if (lines := _json_lines(value)) is not None}
    if not tables:
        return dict(keys)
    digests = {split: blake2b(lines.encode(), digest_size=4).hexdigest() for split, lines in tables.items()}
    out = Path(keys.get("out") or f"runs/table-{'-'.join(digests.values())}")
    files = {split: out / f"{split}-{digests[split]}.jsonl" for split in tables}
    for split, lines in tables.items():
        files[split].parent.mkdir(parents=True, exist_ok=True)
        write_atomic(files[split], lines)
    return {**keys, "data": {**data, **files}, "out": out}


def _json_lines(table: Any) -> str | None:
    """The rows of a table as JSON lines; None for anything else."""
    if hasattr(table, "to_dicts"):
        rows = table.to_dicts()
    elif hasattr(table, "to_dict"):
        rows = table.to_dict("records")
    elif isinstance(table, list) and table and isinstance(table[0], Mapping):
        rows = table
    else:
        return None
    return "".join(f"{json.dumps(row, ensure_ascii=False, default=_plain_cell)}\n" for row in rows)


def _plain_cell(cell: Any) -> Any:
    """A cell of another library, such as a number or an array of NumPy, as Python's."""
    return cell.tolist() if hasattr(cell, "tolist") else str(cell)


def _plain(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keyword arguments to the types of a TOML file."""
    for key in keys:
        table, dot, name = key.partition(".")
        if dot:
            raise InputError(f"'{key}' must be given as a dict; write {table}={{{name!r}: …}}")
    return {key: _plain_value(value) for key, value in keys.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    return str(value) if isinstance(value, Path) else value
