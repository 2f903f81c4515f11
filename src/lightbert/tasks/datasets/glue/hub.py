"""GLUE from the Hugging Face Hub."""

from typing import Any

from lightbert.errors import InputError, required
from lightbert.tasks.datasets.glue.columns import find_columns
from lightbert.tasks.datasets.glue.table import TABLE
from lightbert.tasks.example import Example

_REPOSITORY = "nyu-mll/glue"

# The label of unlabelled examples in the test sets of the Hub.
_UNKNOWN = -1


def read_split(name: str, split: str) -> list[Example]:
    """Download one split of a task, or read it from the cache of datasets; label ids become label names."""
    row = TABLE[name]
    found = _load(name, row.splits[split].hub)
    columns = find_columns(found.column_names, row)
    if columns is None or columns.label is None:
        raise InputError(f"{name} of {_REPOSITORY} must have the columns of GLUE, has {', '.join(found.column_names)}")
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
    with required(f"downloading {name} requires datasets", "lightbert[hf]", ", or give data=FOLDER"):
        from datasets import load_dataset
    try:
        return load_dataset(_REPOSITORY, name, split=split)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"can't download {name} from {_REPOSITORY} ({reason}); give the folder of the GLUE files: data=FOLDER"
        ) from error


def _label(value: int | float, labels: tuple[str, ...]) -> str | float | None:
    if value == _UNKNOWN:
        return None
    if not labels:
        return float(value)
    if value not in range(len(labels)):
        raise InputError(f"labels of {_REPOSITORY} must be in [0, {len(labels) - 1}], got {value}")
    return labels[int(value)]
