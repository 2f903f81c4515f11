"""The data of a task as features; cached, so that the runs of a grid read and encode it once."""

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.tasks.datasets import open_task
from lightbert.tasks.datasets.own_files import Files, separator_of_joined
from lightbert.tasks.example import Example, Examples, TextEncoder
from lightbert.tasks.finetune.defaults import LENGTHS, length_for
from lightbert.tasks.finetune.recipe import AnswerSettings, FinetuneRecipe
from lightbert.tasks.kinds.classify import Classify, Labels
from lightbert.tasks.kinds.kind import Kind, Task
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans import Spans

if TYPE_CHECKING:
    from tokenizers import Tokenizer


_MAX_LABELS_SHOWN = 10
_MAX_SHARE_OF_LABEL = 0.95
_LEAK_ROWS = 2_000
_MIN_EXAMPLES = 20
"""With fewer examples, metrics say little."""


@dataclass(frozen=True)
class TaskData:
    """A task, its training features, and the examples and features of its development splits."""

    task: Task
    train: Features
    dev: dict[str, tuple[Examples[Any], Features]]
    skipped: dict[str, int]
    """The number of bad rows of each split that were skipped."""
    request: "DataRequest"
    """What was read, and how it was encoded."""
    length: int
    """The maximum tokens per row."""
    examples: Examples[Any]
    """The training examples."""

    @cached_property
    def content(self) -> str:
        """A hash of the data: the encoded texts, their targets, and the development examples."""
        digest = hashlib.sha256()
        for features in (self.train, *(features for _, features in self.dev.values())):
            for array in (features.tokens, features.starts, features.seconds, features.sources, features.targets):
                digest.update(b"" if array is None else np.ascontiguousarray(array).data)
        for examples, _ in self.dev.values():
            digest.update(repr(examples).encode("utf-8", "surrogatepass"))
        return f"sha256:{digest.hexdigest()}"


@dataclass(frozen=True)
class DataRequest:
    """Everything that the features depend on except the content of the files; the cache key."""

    task: str
    data: str | Files
    tokenizer: str
    """The text of the tokenizer.json of a model folder."""
    length: int
    """0: chosen from the lengths of the texts."""
    limit: int
    double: bool
    scaled: bool
    answers: AnswerSettings

    @classmethod
    def of(cls, recipe: FinetuneRecipe, tokenizer: str) -> "DataRequest":
        """Build the request of a recipe whose model has this tokenizer."""
        return cls(
            task=recipe.task,
            data=recipe.data,
            tokenizer=tokenizer,
            length=0 if "length" in recipe.auto else recipe.length,
            limit=recipe.limit,
            double=recipe.double,
            scaled=recipe.scaled,
            answers=recipe.answers,
        )


def load_data(recipe: FinetuneRecipe, tokenizer: "Tokenizer", *, positions: int = 0, verbose: bool = True) -> TaskData:
    """Read and encode the training and development data of a recipe.

    positions: the maximum length of rows that is chosen from the data; 0 = unlimited.
    verbose: print a summary, and how many texts were truncated, to stderr.
    """
    return _load_data(DataRequest.of(recipe, tokenizer.to_str(pretty=True)), positions, verbose=verbose)


def announce_data(recipe: FinetuneRecipe) -> None:
    """Read the data of a recipe and print a summary to stderr, before torch and the model are loaded."""
    request = DataRequest.of(recipe, tokenizer="")
    _announced[request] = _read(request)
    _announced[request].print_summary()


@dataclass(frozen=True)
class _Texts:
    """A task with its training and development examples."""

    task: Task
    train: Examples[Any]
    dev: dict[str, Examples[Any]]

    def print_summary(self) -> None:
        """Summarize the data in one line, so that a wrongly inferred kind is visible before training starts."""
        labels = getattr(self.task.kind, "labels", ())
        names = ", ".join(labels[:_MAX_LABELS_SHOWN]) + (", …" if len(labels) > _MAX_LABELS_SHOWN else "")
        kind = f"{self.task.kind.name}, {len(labels)} labels ({names})" if labels else self.task.kind.name
        splits = "".join(f", {len(held_out):,} in {split}" for split, held_out in self.dev.items())
        print(
            f"{self.task.name}: {kind}; {len(self.train):,} examples to train on{splits}", file=sys.stderr, flush=True
        )
        for note in self._notes():
            print(note, file=sys.stderr)

    def _notes(self) -> Iterator[str]:
        """What is probably wrong with custom files."""
        kind = self.task.kind
        if not self.task.reading:
            return
        if isinstance(kind, Classify | Labels) and (separator := separator_of_joined(kind.labels)):
            yield (
                f"if a text can have several labels, joined by {separator!r}, set data.kind=labels "
                f"data.label_separator='{separator}'"
            )
        if isinstance(kind, Classify):
            yield from _notes_of_labels(self.train, self.task.reading, "f1" if len(kind.labels) == 2 else "macro_f1")
        trained = {_texts(example) for example in self.train}
        for split, examples in self.dev.items():
            known = sum(_texts(example) in trained for example in examples)
            if known:
                yield (
                    f"{known:,} of {len(examples):,} texts in {split} are also in the training data: metrics on them "
                    "are too high; remove them from one of the files"
                )
            if len(examples) < _MIN_EXAMPLES:
                yield f"{split} has only {len(examples)} examples: its metrics are rough estimates"


_announced: dict["DataRequest", _Texts] = {}
"""What `announce_data` has read, until it is loaded."""


def _read(request: "DataRequest") -> _Texts:
    task = open_task(request.task or "own", request.data)
    task = replace(task, kind=_apply_settings(task.kind, request.scaled, request.answers))
    if "train" not in task.splits:
        where = request.data.folder if isinstance(request.data, Files) else request.data
        raise InputError(
            f"the task {task.name!r} requires a training file, but '{where}' only has {', '.join(task.splits)}; give a "
            "folder with the files of train and dev"
        )
    loaded = task.examples("train")
    if task.reading and isinstance(task.kind, Classify):
        _check_repeated(task.kind.labels, loaded)
    examples = loaded[: request.limit or None]
    if request.double and task.symmetric:
        examples = [*examples, *map(_swap, examples)]
    dev = {split: task.examples(split) for split in task.splits if split.startswith("dev")}
    return _Texts(task, Examples(examples, loaded.skipped), dev)


# Most runs of a grid share their data.
@lru_cache(maxsize=1)
def _load_data(request: DataRequest, positions: int, *, verbose: bool) -> TaskData:
    from tokenizers import Tokenizer

    key = replace(request, tokenizer="")
    known = _announced.pop(key, None)
    texts = known or _read(key)
    if verbose and known is None:
        texts.print_summary()
    task, tokenizer, length = texts.task, Tokenizer.from_str(request.tokenizer), request.length
    if not length:
        whole = TextEncoder(tokenizer, positions or LENGTHS[-1])
        length = length_for(task.kind.features(texts.train, whole).lengths.tolist(), positions)
    encoder = TextEncoder(tokenizer, length)
    train = task.kind.features(texts.train, encoder)
    if verbose and train.cut and task.kind.one_per_text:
        print(
            f"{train.cut:,} of {len(texts.train):,} training texts were truncated to {length} tokens: "
            "raise length= to keep more of them",
            file=sys.stderr,
        )
    dev = {split: (examples, task.kind.features(examples, encoder)) for split, examples in texts.dev.items()}
    skipped = {split: examples.skipped for split, examples in (("train", texts.train), *texts.dev.items())}
    return TaskData(task, train, dev, skipped, request, length, texts.train)


def _apply_settings(kind: Kind[Any], scaled: bool, answers: AnswerSettings) -> Kind[Any]:
    """Apply the recipe's settings to the kind of task."""
    if isinstance(kind, Regress):
        return replace(kind, scaled=scaled)
    if isinstance(kind, Spans):
        return kind.with_settings(**vars(answers))
    return kind


def _check_repeated(labels: Sequence[str], examples: Sequence[Example]) -> None:
    """Check that the labels are classes: a column with nearly as many labels as rows, such as an id, was not meant."""
    if len(examples) >= _MIN_EXAMPLES and len(labels) > len(examples) / 2:
        raise InputError(
            f"classification requires several rows per label, got {len(labels):,} labels for {len(examples):,} rows to "
            "train on; set data.label to the column of the classes, or data.kind=regress if the labels are numbers"
        )


def _notes_of_labels(examples: Sequence[Example], columns: Mapping[str, Any], metric: str) -> Iterator[str]:
    """What is probably wrong with labels: nearly all are the same, or a text says its label."""
    [(label, count)] = Counter(example.label for example in examples).most_common(1)
    if count > _MAX_SHARE_OF_LABEL * len(examples):
        yield (
            f"{count / len(examples):.0%} of the examples have the label {str(label)!r}: accuracy says little; "
            f"set metric={metric}"
        )
    for field in ("text", "text_b") if columns["text_b"] else ("text",):
        cells = [(str(getattr(example, field)).lower(), str(example.label)) for example in examples[:_LEAK_ROWS]]
        written = sum(re.search(rf"\b{re.escape(label.lower())}\b", text) is not None for text, label in cells)
        distinct = len({text for text, _ in cells})
        determines = distinct == len(set(cells)) and distinct <= len(cells) / 2
        if determines or written > _MAX_SHARE_OF_LABEL * len(cells):
            how = "contains" if not determines else "determines"
            yield (
                f"the column {columns[field]!r} {how} the label: if it isn't known when texts are predicted, choose "
                f"another data.{field}"
            )


def _texts(example: Any) -> Any:
    """The texts of an example, without its label."""
    return replace(example, id="", **{name: None for name in ("label", "tags", "answers") if hasattr(example, name)})


def _swap(example: Example) -> Example:
    assert example.text_b is not None
    return replace(example, text=example.text_b, text_b=example.text)
