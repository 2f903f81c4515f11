"""Read SQuAD data files."""

from pathlib import Path
from typing import NamedTuple, get_args

from lightbert.data.text_files import BadRowError, BadRows
from lightbert.errors import InputError, unknown
from lightbert.tasks.datasets.squad.document import Entry, entries, field, read_json
from lightbert.tasks.example import Answer, Question
from lightbert.tasks.kinds.spans.windows import locate_answer


class Reading(NamedTuple):
    """The questions of a file, and the errors of those that were skipped."""

    questions: list[Question]
    skipped: list[str]


def read(path: str | Path, *, unanswerable: bool = True, bad_rows: str = "error") -> Reading:
    """Read a file of SQuAD 1.1 or 2.0, plain or compressed.

    A question with a missing field, or with an answer that isn't in the context, is an error or is skipped.
    Questions of a paragraph share its context. Without `unanswerable`, a question without an answer is an error too.
    """
    if bad_rows not in get_args(BadRows):
        raise unknown("value of bad_rows", bad_rows, get_args(BadRows))
    document = read_json(path)
    questions: list[Question] = []
    skipped: list[str] = []
    try:
        for entry in entries(document):
            try:
                questions.append(_question(entry, unanswerable))
            except InputError as error:
                if bad_rows == "error":
                    raise BadRowError(f"in '{path}', {error}") from None
                skipped.append(str(error))
    except BadRowError:
        raise
    except InputError as error:
        raise InputError(f"in '{path}', {error}") from None
    if not questions:
        reason = f": {skipped[0]}" if skipped else ""
        raise InputError(f"'{path}' must contain at least one valid question{reason}; give a file in SQuAD format")
    return Reading(questions, skipped)


def _question(entry: Entry, unanswerable: bool) -> Question:
    context = field(entry.paragraph, "context", str, entry.place.rpartition(".")[0])
    question, identity = field(entry.fields, "question", str, entry.place), field(entry.fields, "id", str, entry.place)
    answers = _answers(entry, context, identity)
    if answers == () and not unanswerable:
        raise InputError(f"every question of SQuAD 1.1 must have an answer, got none for {identity!r} ({entry.place})")
    return Question(question, context, answers, identity)


def _answers(entry: Entry, context: str, identity: str) -> tuple[Answer, ...] | None:
    if entry.fields.get("is_impossible") is True:
        return ()
    if "answers" not in entry.fields:
        return None
    found = []
    for number, answer in enumerate(field(entry.fields, "answers", list, entry.place)):
        place = f"{entry.place}.answers[{number}]"
        text, start = field(answer, "text", str, place), field(answer, "answer_start", int, place)
        one = locate_answer(context, text, start)
        if one is None:
            raise InputError(
                f"the answer {text!r} of {identity!r} must occur in its context at character {start} ({place})"
            )
        found.append(one)
    return tuple(found)
