"""Custom files as a task: single texts, pairs of texts, or sentences with tags.

The kind of task is `data.kind`. With "auto" it is inferred from the training file: tagging if the file has CoNLL
columns, or lists of words and of tags but no text column; otherwise from the labels (`infer_kind`).
The labels are those of the whole training file. A row of another file with any other label or tag is a bad row.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lightbert.data.tables import FORMATS, WITH_HEADER, Table, table_format
from lightbert.data.text_files import RowFile, decoding_problem, text_lines
from lightbert.errors import InputError
from lightbert.tasks.datasets.own_files import Files, as_list, hold_out, infer_kind, unknown_label
from lightbert.tasks.example import E, Example, Examples, TaggedSentence
from lightbert.tasks.kinds import kind_class
from lightbert.tasks.kinds.classify import Labels
from lightbert.tasks.kinds.kind import Kind, Task, label_name, sort_labels
from lightbert.tasks.kinds.tokens import Tokens

_DOCUMENT = "-DOCSTART-"
# The usual prefix of comments, as in CoNLL-U; it is also a word, so that comments are not skipped by default.
_COMMENT = "#"
_LINES_TO_CHECK = 200
_MIN_SHARE, _MIN_CHOSEN_SHARE = 0.8, 0.5
_LINES_OF_PROSE, _MAX_SHARE_OF_TAGS = 50, 0.5


def read_sentences(
    path: str, files: Files, known: Collection[str] | None = None, *, test: bool = False
) -> Examples[TaggedSentence]:
    """Read a file. `known` are the allowed tags; None allows all. Only a `test` file may have no tags.

    If bad rows are skipped, a bad line skips its whole sentence.
    """
    if table_format(path) in FORMATS:
        with _sentence_table(path, files, test=test) as table:
            return _collect(table, _from_table(table, files, known))
    with RowFile(path, files.bad_rows) as file:
        return _collect(file, _from_columns(file, files, known, test))


def check_table(path: str, files: Files, kind: str, *, test: bool = False) -> None:
    """Check the columns of a table for a kind of task, without reading its rows; other files have no header."""
    if table_format(path) in WITH_HEADER:
        (_sentence_table if kind == Tokens.name else _table)(path, files, test=test).check_columns()


def _sentence_table(path: str, files: Files, *, test: bool) -> Table:
    needed = {"data.words": files.words} | ({} if test else {"data.tags": files.tags})
    return Table(path, needed, files.table_options(), optional=[files.tags])


def check_columns(path: str, files: Files) -> None:
    """Check that a file has columns: most of its first lines have the same number of fields, and tags are repeated.

    If the kind was chosen rather than inferred, more of them may be bad.
    """
    blocks = enumerate(_blocks(RowFile(path), files))
    lines = ((number, _fields(line)) for number, block in blocks for _, line in block)
    checked = list(itertools.islice(lines, _LINES_TO_CHECK))
    if not checked:
        return
    width, most = Counter(len(fields) for _, fields in checked).most_common(1)[0]
    share = _MIN_SHARE if files.kind == "auto" else _MIN_CHOSEN_SHARE
    # Lines of verse, or of sentences by a template, have equally many words; but no blank lines, and many last words.
    is_one_sentence = checked[-1][0] == 0 and len(checked) >= _LINES_OF_PROSE
    tags = {fields[files.tag_column] for _, fields in checked if -len(fields) <= files.tag_column < len(fields)}
    is_prose = is_one_sentence and len(tags) > _MAX_SHARE_OF_TAGS * len(checked)
    if width == 1 or most < share * len(checked) or is_prose:
        raise InputError(
            f"'{path}' must have CoNLL columns, a word and its tag per line, but seems to be plain text; to classify "
            f"texts, give a table with texts and labels ({', '.join(FORMATS)})"
        )


def _collect(file: RowFile, rows: Iterator[E]) -> Examples[E]:
    examples = Examples(rows)
    file.require_some(len(examples))
    examples.skipped = file.skipped
    return examples


def _from_table(table: Table, files: Files, known: Collection[str] | None) -> Iterator[TaggedSentence]:
    for number, values in table:
        try:
            sentence = _sentence(values[files.words], values.get(files.tags), number)
        except ValueError as error:
            table.reject(number, str(error))
            continue
        if problem := _unknown_tag(sentence.tags or (), known):
            table.reject(number, problem)
        else:
            yield sentence


def _sentence(words: Any, tags: Any, number: int) -> TaggedSentence:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("must have a list of words")
    if tags is None:
        return TaggedSentence(tuple(words), id=str(number))
    if not isinstance(tags, list) or len(tags) != len(words):
        raise ValueError(f"must have a list of {len(words)} tags, one per word")
    return TaggedSentence(tuple(words), tuple(label_name(tag) for tag in tags), id=str(number))


def _from_columns(file: RowFile, files: Files, known: Collection[str] | None, test: bool) -> Iterator[TaggedSentence]:
    width = 0
    for block in _blocks(file, files):
        if not width:
            width = len(_fields(block[0][1]))
            word, tag = (
                _column_index(column, width, setting, file)
                for setting, column in (("data.word_column", files.word_column), ("data.tag_column", files.tag_column))
            )
            if word == tag and not test:
                raise InputError(
                    f"words and tags must be in different columns, got column {word} of '{file.path}' for "
                    "both; set data.tag_column"
                )
        words, tags = [], []
        for number, line in block:
            fields = _fields(line)
            if problem := _problem(line, fields, width, word, comments=_has_comment(block, files)) or (
                word != tag and _unknown_tag([fields[tag]], known)
            ):
                file.reject(number, problem)
                break
            words.append(fields[word])
            tags.append(fields[tag])
        else:
            yield TaggedSentence(tuple(words), None if word == tag else tuple(tags), id=str(block[0][0]))


def _blocks(file: RowFile, files: Files) -> Iterator[list[tuple[int, str]]]:
    """Yield the numbered lines of each sentence; sentences are separated by blank lines and -DOCSTART- lines."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(text_lines(file.path, files.encoding), start=1):
        if files.comments and not block and line.startswith(files.comments):
            continue
        if line.strip() and line.split(maxsplit=1)[0] != _DOCUMENT:
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _fields(line: str) -> list[str]:
    """Split at tabs if there are any, so that fields may contain spaces; else at white space."""
    return [field.strip() for field in line.strip("\r\n").split("\t")] if "\t" in line else line.split()


def _column_index(column: int, width: int, setting: str, file: RowFile) -> int:
    if not -width <= column < width:
        raise InputError(f"{setting} must be in [{-width}, {width - 1}], the columns of '{file.path}', got {column}")
    return column % width


def _problem(line: str, fields: list[str], width: int, word: int, *, comments: bool) -> str:
    if problem := decoding_problem(line):
        return problem
    if len(fields) != width:
        hint = f" (if lines that begin with {_COMMENT} are comments, set data.comments={_COMMENT})" if comments else ""
        return f"must have {width} columns like the first sentence, has {len(fields)}{hint}"
    return "" if fields[word] else "has no word"


def _has_comment(block: list[tuple[int, str]], files: Files) -> bool:
    """Whether the sentence begins with a line that may be a comment, which is read as a word."""
    return not files.comments and block[0][1].startswith(_COMMENT)


def _unknown_tag(tags: Iterable[str], known: Collection[str] | None) -> str:
    """The reason to reject the first unknown tag; "" if all tags are known."""
    return next((unknown_label("tag", tag, known) for tag in tags if known is not None and tag not in known), "")


_Row = tuple[int, Example, Any]
"""The row number, the texts, and the label cell (None if missing)."""


def read_training_texts(path: str, files: Files) -> tuple[Kind[Any], Examples[Example]]:
    """Read the training file, and infer the kind of task and the labels from it."""
    with _table(path, files, test=False) as table:
        rows = list(_rows(table, files))
        kind = infer_kind([cell for _, _, cell in rows]) if files.kind == "auto" else kind_class(files.kind)
        examples = _collect(table, _add_labels(rows, table, kind, files.label_separator))
    return kind.of_labels([example.label for example in examples if example.label is not None], path), examples


def read_texts(path: str, files: Files, kind: Kind[Any], *, test: bool = False) -> Examples[Example]:
    """Read another file; only a `test` file may have no labels."""
    known = getattr(kind, "labels", None)
    with _table(path, files, test=test) as table:
        rows = list(_rows(table, files))
        if test and _empty_is_unknown(rows, kind):
            rows = [(number, example, None if cell == "" else cell) for number, example, cell in rows]
        return _collect(table, _add_labels(rows, table, type(kind), files.label_separator, known))


def _empty_is_unknown(rows: Sequence[_Row], kind: Kind[Any]) -> bool:
    """Whether an empty cell of a test file is an unknown label; next to sets of labels it is an empty set."""
    return not isinstance(kind, Labels) or all(cell in ("", None) for _, _, cell in rows)


def _table(path: str, files: Files, *, test: bool) -> Table:
    required = {"data.text": files.text}
    if files.text_b:
        required["data.text_b"] = files.text_b
    label = _label_column(Table(path, options=files.table_options()), files)
    if not test:
        required["data.label"] = label
    return Table(path, required, files.table_options(), optional=[label])


def _label_column(table: Table, files: Files) -> str:
    """The label column; "labels" if the default column "label" doesn't exist."""
    columns = table.columns()
    return "labels" if files.label == "label" and "label" not in columns and "labels" in columns else files.label


def _rows(table: Table, files: Files) -> Iterator[_Row]:
    label = _label_column(table, files)
    for number, values in table:
        first, second = values[files.text], values[files.text_b] if files.text_b else None
        if problem := _check_text(first, files.text) or (_check_text(second, files.text_b) if files.text_b else ""):
            table.reject(number, problem)
        else:
            yield number, Example(first, second, id=str(number)), as_list(values.get(label))


def _check_text(cell: Any, column: str) -> str:
    """The reason to reject a cell that isn't a text; "" if it is one."""
    if not isinstance(cell, str):
        return f"has {cell!r} in column {column!r}, which must be a text"
    return "" if cell.strip() else f"has no text in column {column!r}"


def _add_labels(
    rows: Iterable[_Row], table: Table, kind: type[Kind[Any]], separator: str, known: Collection[str] | None = None
) -> Iterator[Example]:
    """Add labels to examples; a row with an invalid or unknown label is rejected."""
    for number, example, cell in rows:
        if cell is None:
            yield example
            continue
        try:
            label = kind.parse(cell, separator)
        except ValueError as error:
            table.reject(number, str(error))
            continue
        names = [label] if isinstance(label, str) else label if isinstance(label, tuple) else []
        unexpected = next((name for name in names if known is not None and name not in known), None)
        if unexpected is None:
            yield replace(example, label=label)
        else:
            table.reject(number, unknown_label("label", unexpected, known or ()))


_CONLL_SUFFIXES = ("", ".conll", ".conllu", ".iob", ".iob1", ".iob2", ".bio", ".bioes", ".ner", ".pos", ".txt")


def own_task(data: str | Files, *, kind: Kind[Any] | None = None, name: str = "own") -> Task:
    """Open `Files`, or the files that `Files.at` finds at a path.

    kind: the kind of the model to evaluate; None infers it from the training file, which is then read at once.
    Other files are read when their split is requested. Without `data.dev`, a part of the training file is held out.
    """
    files = data if isinstance(data, Files) else Files.at(data)
    if kind is None:
        kind, examples = _read_training_data(files)
        read_train: Callable[[], list[Any]] = partial(Examples, examples, examples.skipped)
    else:
        read_train = partial(_read, files.train, files, kind)
    splits: dict[str, Callable[[], list[Any]]] = {}
    if files.train and files.hold_out and not files.dev:
        splits["train"] = lambda: hold_out(read_train(), files.hold_out)[0]
        splits["dev"] = lambda: hold_out(read_train(), files.hold_out)[1]
    elif files.train:
        splits["train"] = read_train
    if files.dev:
        splits["dev"] = partial(_read, files.dev, files, kind)
    if files.test:
        splits["test"] = partial(_read, files.test, files, kind, test=True)
    return Task(name, kind, splits, kind.metric, reading=files.reading())


def _read_training_data(files: Files) -> tuple[Kind[Any], Examples[Any]]:
    if not files.train:
        raise InputError("the labels are read from data.train, which is not set; add data.train=FILE")
    if not _has_sentences(files):
        return read_training_texts(files.train, files)
    sentences = read_sentences(files.train, files)
    tags = sort_labels([tag for sentence in sentences for tag in sentence.tags or ()])
    if len(tags) < 2:
        raise InputError(f"training requires at least two tags, got {', '.join(tags) or 'none'} in '{files.train}'")
    return Tokens(tags), sentences


def _read(path: str, files: Files, kind: Kind[Any], *, test: bool = False) -> Examples[Any]:
    if isinstance(kind, Tokens):
        return read_sentences(path, files, kind.labels, test=test)
    return read_texts(path, files, kind, test=test)


def _has_sentences(files: Files) -> bool:
    if files.kind != "auto":
        if files.kind == "tokens" and table_format(files.train) not in FORMATS and files.bad_rows == "error":
            check_columns(files.train, files)
        return files.kind == "tokens"
    if table_format(files.train) not in FORMATS:
        if table_format(files.train) in _CONLL_SUFFIXES:
            check_columns(files.train, files)
            return True
        raise InputError(
            f"the name of '{files.train}' must end in {', '.join(FORMATS)}; save it as one of these, or if it has "
            "CoNLL columns, set data.kind=tokens"
        )
    columns = Table(files.train, options=files.table_options()).columns()
    return files.text not in columns and {files.words, files.tags} <= set(columns)
