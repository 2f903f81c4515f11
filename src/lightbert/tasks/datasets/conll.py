"""Sentences with one tag per word: CoNLL columns, or tables with lists of words and of tags."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from lightbert.data.tables import FORMATS, Table, table_format
from lightbert.data.text_files import RowFile, decoding_problem, text_lines
from lightbert.errors import InputError
from lightbert.tasks.datasets.label_cells import label_name, unknown_label
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.example import Examples, TaggedSentence

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
        needed = {"data.words": files.words} | ({} if test else {"data.tags": files.tags})
        with Table(path, needed, optional=[files.tags], separator=files.separator, bad_rows=files.bad_rows) as table:
            return _collect(table, _from_table(table, files, known))
    with RowFile(path, files.bad_rows) as file:
        return _collect(file, _from_columns(file, files, known, test))


def check_columns(path: str, files: Files) -> None:
    """Check that a file has columns: most of its first lines have the same number of fields, and tags are repeated.

    If the kind was chosen rather than inferred, more of them may be bad.
    """
    blocks = enumerate(_blocks(RowFile(path), files.comments))
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


def _collect(file: RowFile, sentences: Iterator[TaggedSentence]) -> Examples[TaggedSentence]:
    found = Examples(sentences)
    file.require_some(len(found))
    found.skipped = file.skipped
    return found


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
    for block in _blocks(file, files.comments):
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


def _blocks(file: RowFile, comments: str) -> Iterator[list[tuple[int, str]]]:
    """Yield the numbered lines of each sentence; sentences are separated by blank lines and -DOCSTART- lines."""
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
