"""A task's examples as features, ready to train on: read once, however many runs need them."""

import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lightbert.data.examples.features import Features
from lightbert.tasks.datasets.catalogue import open_task
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.datasets.task import Task
from lightbert.tasks.example import Example
from lightbert.tasks.finetune.recipe import AnswerSettings, FinetuneRecipe
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.regress.kind import Regress
from lightbert.tasks.kinds.spans.kind import Spans
from lightbert.tasks.texts import TextEncoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# Of more labels the first tell what kind they are.
_LABELS_SHOWN = 10


@dataclass(frozen=True)
class Prepared:
    """A task with its training rows, and its development splits with their examples."""

    task: Task
    train: Features
    dev: dict[str, tuple[list[Any], Features]]

    def sentence(self, examples: int) -> str:
        """A summary of the data, so that a wrong guess is seen before the training."""
        labels = getattr(self.task.kind, "labels", ())
        names = ", ".join(labels[:_LABELS_SHOWN]) + (", …" if len(labels) > _LABELS_SHOWN else "")
        kind = f"{self.task.kind.name}, {len(labels)} labels ({names})" if labels else self.task.kind.name
        splits = "".join(f", {len(judged):,} in {split}" for split, (judged, _) in self.dev.items())
        return f"{self.task.name}: {kind}; {examples:,} examples to train on{splits}"


@dataclass(frozen=True)
class _Request:
    """What decides the features: runs that agree on it share them."""

    task: str
    data: str | Files
    tokenizer: str
    length: int
    limit: int
    double: bool
    scaled: bool
    answers: AnswerSettings


def prepare(recipe: FinetuneRecipe, tokenizer: "Tokenizer", *, says: bool = True) -> Prepared:
    """Read and encode the training and development data of a recipe, and print a summary of it to stderr."""
    request = _Request(
        task=recipe.task,
        data=recipe.data,
        tokenizer=tokenizer.to_str(),
        length=recipe.length,
        limit=recipe.limit,
        double=recipe.double,
        scaled=recipe.scaled,
        answers=recipe.answers,
    )
    return _prepare(request, says=says)


# The runs of a grid mostly share their data.
@lru_cache(maxsize=1)
def _prepare(request: _Request, *, says: bool) -> Prepared:
    from tokenizers import Tokenizer

    task = open_task(request.task or "own", request.data)
    task = replace(task, kind=_configured(task.kind, request.scaled, request.answers))
    encoder = TextEncoder(Tokenizer.from_str(request.tokenizer), request.length)
    examples = task.examples("train")
    examples = examples[: request.limit] if request.limit else examples
    if request.double and task.symmetric:
        examples = [*examples, *map(_swapped, examples)]
    train = task.kind.features(examples, encoder)
    if says and train.cut and task.kind.head in ("classify", "regress"):
        print(
            f"{train.cut:,} of {len(examples):,} training texts are longer than {request.length} tokens and were cut: "
            "raise length= to read more of them",
            file=sys.stderr,
        )
    dev = {}
    for split in (split for split in task.splits if split.startswith("dev")):
        judged = task.examples(split)
        dev[split] = (judged, task.kind.features(judged, encoder))
    prepared = Prepared(task, train, dev)
    if says:
        print(prepared.sentence(len(examples)), file=sys.stderr)
    return prepared


def _configured(kind: Kind[Any], scaled: bool, answers: AnswerSettings) -> Kind[Any]:
    """The kind with the recipe's settings for it."""
    if isinstance(kind, Regress):
        return replace(kind, scaled=scaled)
    if isinstance(kind, Spans):
        return kind.with_settings(**vars(answers))
    return kind


def _swapped(example: Example) -> Example:
    assert example.text_b is not None
    return replace(example, text=example.text_b, text_b=example.text)
