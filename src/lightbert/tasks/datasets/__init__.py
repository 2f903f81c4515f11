"""Tasks by name: GLUE, SQuAD, and custom files."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lightbert.data.text_files import BadRows
from lightbert.errors import InputError, unknown
from lightbert.tasks.datasets.glue import find, open_glue
from lightbert.tasks.datasets.own import own_task
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.datasets.squad import squad_task
from lightbert.tasks.kinds.kind import Task


def open_task(name: str, data: str | Files = "", *, bad_rows: BadRows = "error") -> Task:
    """Open a task; a split is read when it is requested.

    name: a GLUE task in any of the usual spellings, "squad" (1.1), "squad2", or for custom files "own", or "tokens" if
    they are sentences with tags.
    data: for GLUE and SQuAD a folder, or `Files` with ``folder`` set; "" or "hub" downloads GLUE from the Hugging Face
    Hub. For custom files, `Files`, or a path for `Files.at`.
    bad_rows: whether rows that can't be read are an error or skipped, if ``data`` is a path; `Files` have their own.
    """
    name = find(name) or name
    if name not in _OPENERS:
        raise unknown("task", name, _OPENERS)
    return _OPENERS[name](name, data, bad_rows)


def _glue(name: str, data: str | Files, bad_rows: BadRows) -> Task:
    folder, bad_rows = _folder(name, data, bad_rows)
    return open_glue(name, folder, bad_rows=bad_rows)


def _squad(name: str, data: str | Files, bad_rows: BadRows) -> Task:
    folder, bad_rows = _folder(name, data, bad_rows)
    if not folder:
        raise InputError(f"task {name!r} requires data=FOLDER, the folder of its files")
    return squad_task(folder, version="2.0" if name == "squad2" else "1.1", bad_rows=bad_rows)


def _own(name: str, data: str | Files, bad_rows: BadRows) -> Task:
    if not data:
        raise InputError("custom data requires data.train=FILE; or set task=NAME data=FOLDER")
    files = data if isinstance(data, Files) else Files(folder=data, bad_rows=bad_rows)
    if files.folder:
        found = Files.at(files.folder)
        files = replace(files, train=found.train, dev=found.dev, test=found.test)
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


_OPENERS: Mapping[str, Callable[[str, str | Files, BadRows], Task]] = {
    "cola": _glue,
    "sst2": _glue,
    "mrpc": _glue,
    "stsb": _glue,
    "qqp": _glue,
    "mnli": _glue,
    "qnli": _glue,
    "rte": _glue,
    "wnli": _glue,
    "ax": _glue,
    "squad": _squad,
    "squad2": _squad,
    "tokens": _own,
    "own": _own,
}
