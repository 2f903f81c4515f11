"""Streams the rows of Hugging Face datasets."""

from collections.abc import Iterator

from lightbert.errors import InputError, required


def rows(specification: str, column: str) -> Iterator[tuple[str, int]]:
    """Yield the text `column` of `hf:NAME[:CONFIG][:SPLIT]`, with 0 for the unknown number of bytes read so far.

    The default split is "train"; CONFIG may be empty.
    """
    with required(f"'{specification}' requires datasets", "lightbert[hf]"):
        from datasets import load_dataset
    _, *parts = specification.split(":")
    if not parts[0] or len(parts) > 3:
        raise InputError(f"cannot read '{specification}'; write hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT")
    name, config, split = (*parts, "", "")[:3]
    try:
        found = load_dataset(name, config or None, split=split or "train", streaming=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot open '{specification}': {_first_line(error)}") from error
    try:
        for row in found:
            if not isinstance(row.get(column), str):
                names = ", ".join(row)
                raise InputError(f"'{specification}' has no text column {column!r}; choose one of {names} with --text")
            yield row[column], 0
    except OSError as error:
        raise InputError(f"reading '{specification}' failed: {_first_line(error)}; run the command again") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
