"""SQuAD's data files to questions."""

from pathlib import Path
from typing import NamedTuple, get_args

from lightbert.data.text.row_file import BadRowError, BadRows
from lightbert.errors import InputError, unknown
from lightbert.tasks.datasets.squad.document import Entry, entries, field, read_json
from lightbert.tasks.example import Answer, Question
from lightbert.tasks.kinds.spans.location import located


class Reading(NamedTuple):
    """The questions of a file, and what was wrong with those that were left out."""

    questions: list[Question]
    skipped: list[str]


def read(path: str | Path, *, unanswerable: bool = True, bad_rows: str = "error") -> Reading:
    """Read a file of SQuAD 1.1 or 2.0, plain or compressed.

    A question without a field of its own or with an answer that is not in the context is an error, or is left out.
    Questions of one paragraph share its context. Without `unanswerable` a question that has no answer is refused.
    """
    if bad_rows not in get_args(BadRows):
        raise unknown("choice for bad_rows", bad_rows, get_args(BadRows))
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
        raise InputError(f"'{path}' holds no question that can be used{reason}; give a file in SQuAD's own format")
    return Reading(questions, skipped)


def _question(entry: Entry, unanswerable: bool) -> Question:
    context = field(entry.paragraph, "context", str, entry.place.rpartition(".")[0])
    question, identity = field(entry.fields, "question", str, entry.place), field(entry.fields, "id", str, entry.place)
    answers = _answers(entry, context, identity)
    if answers == () and not unanswerable:
        raise InputError(f"the question {identity!r} ({entry.place}) has no answer, which SQuAD 2.0 allows and 1.1 not")
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
        one = located(context, text, start)
        if one is None:
            raise InputError(
                f"the answer {text!r} of the question {identity!r} is not in its context at character {start} ({place})"
            )
        found.append(one)
    return tuple(found)
