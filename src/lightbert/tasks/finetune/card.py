"""The model card of a fine-tuned model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lightbert.models import Model
from lightbert.tasks.datasets.own_files import Files
from lightbert.tasks.finetune.dataset import TaskData
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.tasks.finetune.results import Result
from lightbert.train.model_card import ModelCard, publish, size_of

_MAX_LABELS_SHOWN = 50


def task_card(
    recipe: FinetuneRecipe,
    data: TaskData,
    model: Model,
    result: Result,
    command: Sequence[str],
) -> str:
    """Return the card of the trained model."""
    kind, size = data.task.kind, size_of(model)
    family = size.partition(" with ")[0]
    what = kind.title + ("" if data.task.name == "own" else f" ({data.task.name})")
    start = publish(recipe.model)
    return ModelCard(
        title=f"{family} fine-tuned for {what}",
        summary=f"{size}, fine-tuned from {start} for {what}, for {result.step:,} steps.",
        head=kind.head,
        tags=(kind.name,),
        usage=_usage(kind.name, pairs=bool(model.task.get("pairs"))),
        data=_data(recipe, data),
        command=command,
        recipe=recipe,
        metrics=result.metrics,
        baseline=result.baseline,
        evaluated_on="dev",
        dataset=_train_file(recipe) or data.task.name,
    ).render(model)


def _usage(kind: str, *, pairs: bool) -> str:
    if kind == "vectors":
        return 'model.encode(["some text", "another one"])'
    if kind == "spans":
        return 'model.predict({"question": "What sank?", "context": "Two boats sank off the coast."})'
    return 'model.predict([("a text", "its pair")])' if pairs else 'model.predict(["some text", "another one"])'


def _train_file(recipe: FinetuneRecipe) -> str:
    """The name of the user's training file; "" if the task has its own files."""
    return Path(recipe.data.train).name if isinstance(recipe.data, Files) else ""


def _data(recipe: FinetuneRecipe, data: TaskData) -> dict[str, str]:
    labels = getattr(data.task.kind, "labels", ())
    more = f", … ({len(labels)} labels)" if len(labels) > _MAX_LABELS_SHOWN else ""
    files = recipe.data if isinstance(recipe.data, Files) else Files(folder=recipe.data)
    given = {"folder": files.folder, "training file": files.train, "development file": files.dev}
    return {
        **({} if data.task.name == "own" else {"task": data.task.name}),
        **{name: str(publish(path)) for name, path in given.items() if path},
        **({"labels": ", ".join(labels[:_MAX_LABELS_SHOWN]) + more} if labels else {}),
        "training examples": f"{len(np.unique(data.train.sources)):,}",
        **{f"examples in {split}": f"{len(examples):,}" for split, (examples, _) in data.dev.items()},
    }
