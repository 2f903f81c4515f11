"""Tasks by name: GLUE, SQuAD, and custom files."""

from dataclasses import replace
from typing import TYPE_CHECKING

from lightbert.data.text_files import BadRows
from lightbert.errors import InputError, unknown
from lightbert.tasks.datasets.own_files import Files

if TYPE_CHECKING:
    from lightbert.tasks.datasets.squad import Version
    from lightbert.tasks.kinds.kind import Task

_SQUAD: "dict[str, Version]" = {"squad": "1.1", "squad2": "2.0"}
_OWN = ("tokens", "own")


def open_task(name: str, data: str | Files = "", *, bad_rows: BadRows = "error") -> "Task":
    """Open a task; a split is read when it is requested.

    name: a GLUE task in any of the usual spellings, "squad" (1.1), "squad2", or for custom files "own", or "tokens" if
    they are sentences with tags.
    data: for GLUE and SQuAD a folder, or `Files` with ``folder`` set; "" or "hub" downloads GLUE from the Hugging Face
    Hub. For custom files, `Files`, or a path for `Files.at`.
    bad_rows: whether rows that can't be read are an error or skipped, if ``data`` is a path; `Files` have their own.
    """
    from lightbert.tasks.datasets.glue import TABLE, find, open_glue
    from lightbert.tasks.datasets.own import own_task
    from lightbert.tasks.datasets.pairs import TASKS, vectors_task
    from lightbert.tasks.datasets.squad import squad_task

    name = find(name) or name
    if name in TABLE:
        folder, bad_rows = _folder(name, data, bad_rows)
        return open_glue(name, folder, bad_rows=bad_rows)
    if name in _SQUAD:
        folder, bad_rows = _folder(name, data, bad_rows)
        if not folder:
            raise InputError(f"task {name!r} requires data=FOLDER, the folder of its files")
        return squad_task(folder, version=_SQUAD[name], bad_rows=bad_rows)
    if name in TASKS:
        return vectors_task(name, data if isinstance(data, Files) else Files())
    if name not in _OWN:
        raise unknown("task", name, (*TABLE, *_SQUAD, *TASKS, *_OWN))
    if not data:
        raise InputError("custom data requires data.train=FILE; or set task=NAME data=FOLDER")
    files = data if isinstance(data, Files) else Files(folder=data, bad_rows=bad_rows)
    if files.folder:
        paths = Files.at(files.folder)
        files = replace(files, train=paths.train, dev=paths.dev, test=paths.test)
    return own_task(replace(files, kind="tokens") if name == "tokens" else files, name=name)


def _folder(name: str, data: str | Files, bad_rows: BadRows) -> tuple[str, BadRows]:
    if isinstance(data, str):
        return data, bad_rows
    if data.train or data.dev or data.test:
        raise InputError(
            f"task {name!r} can't be combined with data.train, data.dev or data.test: give data=FOLDER, "
            f"or remove task={name}"
        )
    return data.folder, data.bad_rows
