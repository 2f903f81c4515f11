"""SQuAD 1.1 and 2.0: data files, and prediction files in the format of the official scripts."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lightbert.data.text_files import COMPRESSIONS, BadRowError, BadRows, read_decompressed
from lightbert.errors import InputError, unknown
from lightbert.files import write_atomic
from lightbert.tasks.example import Answer, Examples, Question
from lightbert.tasks.kinds.kind import Task
from lightbert.tasks.kinds.spans import RELEASED_THRESHOLDS, Spans, locate_answer
from lightbert.tasks.metrics import score_1_1, score_2_0


class Entry(NamedTuple):
    """The fields of a question in the file, with its paragraph and its JSON path."""

    place: str
    paragraph: dict[str, Any]
    fields: dict[str, Any]


def read_json(path: str | Path) -> dict[str, Any]:
    """Read an object from a JSON file, plain or compressed."""
    try:
        content = json.loads(read_decompressed(Path(path)))
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not UTF-8 at byte {error.start}; convert it") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not JSON ({error}); give a file in SQuAD format") from None
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is not a JSON object; give a file in SQuAD format")
    return content


def entries(document: dict[str, Any]) -> Iterator[Entry]:
    """Yield every question of a data file, in order."""
    for a, article in enumerate(field(document, "data", list, "the top")):
        here = f"data[{a}]"
        for p, paragraph in enumerate(field(article, "paragraphs", list, here)):
            there = f"{here}.paragraphs[{p}]"
            for q, question in enumerate(field(paragraph, "qas", list, there)):
                place = f"{there}.qas[{q}]"
                if not isinstance(question, dict):
                    raise InputError(f"{place} must be an object")
                yield Entry(place, paragraph, question)


_TYPE_NAMES = {str: "a text", list: "a list", int: "an integer"}


def field(record: object, name: str, kind: type[Any], place: str) -> Any:
    """Get a field and check its type; the error gives its JSON path."""
    value = record.get(name) if isinstance(record, dict) else None
    # In Python, bool is a subclass of int.
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{place} must have {_TYPE_NAMES[kind]} {name!r}")
    return value


def read(path: str | Path, *, unanswerable: bool = True, bad_rows: BadRows = "error") -> Examples[Question]:
    """Read a file of SQuAD 1.1 or 2.0, plain or compressed.

    A question with a missing field, or with an answer that isn't in the context, is an error or is skipped.
    Questions of a paragraph share its context. Without `unanswerable`, a question without an answer is an error too.
    """
    document = read_json(path)
    questions: Examples[Question] = Examples()
    first = ""
    try:
        for entry in entries(document):
            try:
                questions.append(_question(entry, unanswerable))
            except InputError as error:
                if bad_rows == "error":
                    raise BadRowError(f"in '{path}', {error}") from None
                questions.skipped += 1
                first = first or str(error)
    except BadRowError:
        raise
    except InputError as error:
        raise InputError(f"in '{path}', {error}") from None
    if not questions:
        reason = f": {first}" if first else ""
        raise InputError(f"'{path}' must contain at least one valid question{reason}; give a file in SQuAD format")
    if skipped := questions.skipped:
        total = len(questions) + skipped
        print(f"skipped {skipped:,} of {total:,} questions of '{path}'; the first: {first}", file=sys.stderr)
    return questions


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
    located: list[Answer] = []
    for number, answer in enumerate(field(entry.fields, "answers", list, entry.place)):
        place = f"{entry.place}.answers[{number}]"
        text, start = field(answer, "text", str, place), field(answer, "answer_start", int, place)
        answer_found = locate_answer(context, text, start)
        if answer_found is None:
            raise InputError(
                f"the answer {text!r} of {identity!r} must occur in its context at character {start} ({place})"
            )
        located.append(answer_found)
    return tuple(located)


Version = Literal["1.1", "2.0"]

_NAMES = {"1.1": "squad", "2.0": "squad2"}
_ENDINGS = tuple(f".json{compression}" for compression in ("", *COMPRESSIONS))


def squad_task(data: str | Path, *, version: Version, bad_rows: BadRows = "error") -> Task:
    """Open a folder with train-v1.1.json and dev-v1.1.json (or -v2.0), or a single file as the dev split.

    Files may be compressed. Other names work if they contain the split and the version, such as
    cs224n-dev-v2.0.json.xz. For 2.0 the null threshold is the released one until it is tuned on dev.
    """
    if version not in _NAMES:
        raise unknown("version of SQuAD", version, _NAMES)
    path = Path(data)
    if path.is_dir():
        files = {split: found for split in ("train", "dev", "test") if (found := _file(path, split, version))}
    elif path.is_file():
        files = {"dev": path}
    else:
        raise InputError(f"'{data}' not found; give a folder with dev-v{version}.json, or such a file")
    if not files:
        raise InputError(f"folder '{data}' must contain a file such as train-v{version}.json or dev-v{version}.json")
    kind = Spans() if version == "1.1" else Spans(null_threshold=RELEASED_THRESHOLDS["span"])
    splits: dict[str, Callable[[], list[Question]]] = {
        split: partial(read, file, unanswerable=version == "2.0", bad_rows=bad_rows) for split, file in files.items()
    }
    return Task(_NAMES[version], kind, splits, metric="f1")


def _file(folder: Path, split: str, version: str) -> Path | None:
    """The file of a split: with the official name, or the only one whose name contains the split and the version."""
    for ending in _ENDINGS:
        if (official := folder / f"{split}-v{version}{ending}").is_file():
            return official
    matches = [
        path
        for path in sorted(folder.iterdir())
        if path.name.endswith(_ENDINGS) and f"v{version}" in path.name and split in re.findall("[a-z]+", path.name)
    ]
    if len(matches) > 1:
        names = ", ".join(path.name for path in matches)
        raise InputError(
            f"folder '{folder}' must contain one file for {split}, got {names}; rename one to {split}-v{version}.json"
        )
    return matches[0] if matches else None


PREDICTIONS, NULL_ODDS, N_BEST = "predictions.json", "null_odds.json", "nbest.json"


def write_answers(folder: str | Path, examples: Sequence[Question], predictions: Sequence[dict[str, Any]]) -> None:
    """Write the answers, null scores and n-best lists to a folder, each as a JSON file {id: …}."""
    folder = Path(folder)
    ids = [question.id for question in examples]
    seen: set[str] = set()
    for identity in ids:
        if not identity or identity in seen:
            raise InputError(f"every question must have a unique id, got {identity!r}")
        seen.add(identity)
    folder.mkdir(parents=True, exist_ok=True)
    for file, key in ((PREDICTIONS, "answer"), (NULL_ODDS, "null_score"), (N_BEST, "n_best")):
        content = {identity: prediction[key] for identity, prediction in zip(ids, predictions, strict=True)}
        write_atomic(folder / file, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def score(
    data_path: str | Path,
    predictions_path: str | Path,
    na_prob_path: str | Path | None = None,
    *,
    na_prob_threshold: float = 1.0,
) -> dict[str, float]:
    """Score a prediction file, {id: answer}, by the rules of SQuAD 1.1 or 2.0, whichever the data file is.

    na_prob_path: a file {id: number} of no-answer scores. Answers with a score above the threshold count as empty, and
    the best thresholds are computed.
    """
    document = read_json(data_path)
    predictions = _values(predictions_path, str, "text")
    try:
        truths = [_truth(entry.fields, entry.place) for entry in entries(document)]
    except InputError as error:
        raise InputError(f"in '{data_path}', {error}; give a file in SQuAD format") from None
    if _is_version_2(document):
        odds = None if na_prob_path is None else _values(na_prob_path, (int, float), "number")
        return score_2_0(truths, predictions, odds, na_prob_threshold)
    if na_prob_path is not None:
        raise InputError(
            f"no-answer scores require SQuAD 2.0, got SQuAD 1.1 in '{data_path}'; leave out '{na_prob_path}'"
        )
    return score_1_1(truths, predictions)


def _truth(fields: dict[str, Any], place: str) -> tuple[str, list[str]]:
    answers = field(fields, "answers", list, place)
    texts = [field(answer, "text", str, f"{place}.answers[{number}]") for number, answer in enumerate(answers)]
    return field(fields, "id", str, place), texts


def _is_version_2(document: dict[str, Any]) -> bool:
    """Whether a file is SQuAD 2.0: by its version, or without one, by the field "is_impossible"."""
    version = document.get("version")
    if isinstance(version, str) and version:
        return version.lower().lstrip("v").startswith("2")
    return any("is_impossible" in entry.fields for entry in entries(document))


def _values(path: str | Path, kind: type | tuple[type, ...], name: str) -> dict[str, Any]:
    values = read_json(path)
    for identity, value in values.items():
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InputError(f"'{path}' must have a {name} for every question, got {value!r} for {identity!r}")
    return values
