"""GLUE from the Hugging Face hub, for those who have no copy of its files."""

from typing import Any

from lightbert.errors import InputError
from lightbert.tasks.datasets.glue.columns import find_columns
from lightbert.tasks.datasets.glue.table import TABLE
from lightbert.tasks.example import Example

_REPOSITORY = "nyu-mll/glue"

# The label of every example in the hub's test sets.
_UNKNOWN = -1


def read_split(name: str, split: str) -> list[Example]:
    """Fetch one split of a task, or take it from the cache of datasets; numbers of labels become their names."""
    row = TABLE[name]
    found = _load(name, row.splits[split].hub)
    columns = find_columns(found.column_names, row)
    if columns is None or columns.label is None:
        raise InputError(f"{name} of {_REPOSITORY} has columns {', '.join(found.column_names)}, not those of GLUE")
    examples = []
    for number, record in enumerate(found):
        cells = list(record.values())
        examples.append(
            Example(
                text=cells[columns.first],
                text_b=None if columns.second is None else cells[columns.second],
                label=_label(cells[columns.label], tuple(row.labels.values())),
                id=str(number if columns.id is None else cells[columns.id]),
            )
        )
    return examples


def _load(name: str, split: str) -> Any:
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            f"fetching {name} needs datasets; install it with: pip install 'lightbert[hf]', or give data=FOLDER"
        ) from None
    try:
        return load_dataset(_REPOSITORY, name, split=split)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"cannot fetch {name} from {_REPOSITORY} ({reason}); give the folder of GLUE's files: data=FOLDER"
        ) from error


def _label(value: int | float, labels: tuple[str, ...]) -> str | float | None:
    if value == _UNKNOWN:
        return None
    if not labels:
        return float(value)
    if value not in range(len(labels)):
        raise InputError(f"{_REPOSITORY} has a label {value}, but there are only {len(labels)} labels from 0 on")
    return labels[int(value)]
