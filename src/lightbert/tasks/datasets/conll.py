"""Sentences with a tag for each word: CoNLL's columns, or tables with lists of words and of tags."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from lightbert.data.text.row_file import RowFile, decoding_problem, text_lines
from lightbert.data.text.tables import FORMATS, Table, table_format
from lightbert.errors import InputError
from lightbert.tasks.datasets.label_cells import absent, label_name
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.example import Tagged

_DOCUMENT = "-DOCSTART-"


def read_sentences(
    path: str, files: Files, known: Collection[str] | None = None, *, test: bool = False
) -> list[Tagged]:
    """Read a file; `known` are the tags that may occur, any if it is None. Only a `test` file may be without tags.

    A sentence with a bad line is left out whole when bad rows are skipped.
    """
    if table_format(path) in FORMATS:
        needed = {"words": files.words} | ({} if test else {"tags": files.tags})
        with Table(path, needed, optional=[files.tags], separator=files.separator, bad_rows=files.bad_rows) as table:
            return _collected(table, _from_table(table, files, known))
    with RowFile(path, files.bad_rows) as file:
        return _collected(file, _from_columns(file, files, known, test))


def _collected(file: RowFile, sentences: Iterator[Tagged]) -> list[Tagged]:
    found = list(sentences)
    file.require_some(len(found))
    return found


def _from_table(table: Table, files: Files, known: Collection[str] | None) -> Iterator[Tagged]:
    for number, values in table:
        try:
            sentence = _sentence(values[files.words], values.get(files.tags), number)
        except ValueError as error:
            table.reject(number, str(error))
            continue
        if problem := _strange(sentence.tags or (), known):
            table.reject(number, problem)
        else:
            yield sentence


def _sentence(words: Any, tags: Any, number: int) -> Tagged:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("has no list of words")
    if tags is None:
        return Tagged(tuple(words), id=str(number))
    if not isinstance(tags, list) or len(tags) != len(words):
        raise ValueError(f"has {len(words)} words, but not a list of as many tags")
    return Tagged(tuple(words), tuple(label_name(tag) for tag in tags), id=str(number))


def _from_columns(file: RowFile, files: Files, known: Collection[str] | None, test: bool) -> Iterator[Tagged]:
    width = 0
    for block in _blocks(file, files.comments):
        if not width:
            width = len(_fields(block[0][1]))
            word, tag = (
                _place(column, width, setting, file)
                for setting, column in (("data.word_column", files.word_column), ("data.tag_column", files.tag_column))
            )
            if word == tag and not test:
                raise InputError(f"column {word} of '{file.path}' cannot hold words and tags; set data.tag_column")
        words, tags = [], []
        for number, line in block:
            fields = _fields(line)
            if problem := _problem(line, fields, width, word) or (word != tag and _strange([fields[tag]], known)):
                file.reject(number, problem)
                break
            words.append(fields[word])
            tags.append(fields[tag])
        else:
            yield Tagged(tuple(words), None if word == tag else tuple(tags), id=str(block[0][0]))


def _blocks(file: RowFile, comments: str) -> Iterator[list[tuple[int, str]]]:
    """Yield the numbered lines of each sentence; blank lines and documents' first lines stand between them."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text_lines(file.path), start=1):
        if comments and not block and line.startswith(comments):
            continue
        if line.strip() and line.split(maxsplit=1)[0] != _DOCUMENT:
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _fields(line: str) -> list[str]:
    """Split at tabs if there are any, so that fields may hold spaces."""
    return [field.strip() for field in line.strip("\r\n").split("\t")] if "\t" in line else line.split()


def _place(column: int, width: int, setting: str, file: RowFile) -> int:
    if not -width <= column < width:
        raise InputError(f"'{file.path}' has {width} columns; {setting}={column} must be from 0 to {width - 1}")
    return column % width


def _problem(line: str, fields: list[str], width: int, word: int) -> str:
    if problem := decoding_problem(line):
        return problem
    if len(fields) != width:
        return f"has {len(fields)} columns where the first sentence has {width}"
    return "" if fields[word] else "has no word"


def _strange(tags: Iterable[str], known: Collection[str] | None) -> str:
    """What is wrong with the first tag that is not known."""
    return next((absent("tag", tag, known) for tag in tags if known is not None and tag not in known), "")
