"""Fine-tuning of vectors: the pooling that is saved with the model, the objective, and predictions on dev."""

from collections.abc import Sequence
from typing import Any

from lightbert.data.features import Specials
from lightbert.errors import InputError
from lightbert.models import Model, add_head
from lightbert.nn.pooling_settings import PROJECTION, Pooling
from lightbert.objectives.text_vectors import GradedObjective, PairObjective, VectorObjective
from lightbert.tasks.example import Example
from lightbert.tasks.finetune.recipe import VectorSettings
from lightbert.tasks.kinds.kind import Prediction
from lightbert.tasks.kinds.vectors import Vectors
from lightbert.tasks.predict.vectors import embedder_of


def set_pooling(model: Model, settings: VectorSettings, kind: Vectors, length: int, seed: int) -> None:
    """Declare how the model computes vectors, and replace its heads: by a new projection, the one it has, or none."""
    known = model.pooling or Pooling()
    pool = known.pool if settings.pool == "auto" else settings.pool
    keeps = not settings.size and known.projection
    if keeps and pool != known.pool:
        raise InputError(f"vector.pool must be {known.pool!r}, that of the model's projection, got {pool!r}")
    for head in set(model.heads) - ({PROJECTION} if keeps else set()):
        del model.heads[head]
        del model.head_settings[head]
    if settings.size:
        add_head(model, PROJECTION, {"size": settings.size, "pool": pool}, seed=seed)
    width = model.head_settings[PROJECTION]["size"] if keeps or settings.size else model.width
    if bad := [size for size in settings.sizes if size >= width]:
        raise InputError(f"vector.sizes must be < {width}, the size of the vectors, got {bad[0]}")
    if kind.loss == "texts" and not _has_dropout(model):
        raise InputError("vectors-texts requires a model with dropout, got 0; add change.dropout=0.1")
    prompts = {name: text for name, text in zip(("query", "document"), kind.prompts, strict=True) if text}
    model.pooling = Pooling(
        pool, settings.normalize, length, bool(keeps or settings.size), prompts, sizes=tuple(settings.sizes)
    )
    model.labels, model.task = (), {}


def _has_dropout(model: Model) -> bool:
    return any(getattr(model.config, name, 0) > 0 for name in ("dropout", "attention_dropout"))


def vector_objective(model: Model, settings: VectorSettings, kind: Vectors) -> VectorObjective:
    """The objective of a kind of vectors."""
    shared: dict[str, Any] = {
        "pad": Specials.of(model.require_tokenizer()).pad,
        "chunk": settings.chunk,
        "temperature": settings.temperature,
    }
    if kind.loss == "graded":
        return GradedObjective(model, settings.graded, **shared)
    return PairObjective(model, kind.texts, **shared)


def vector_predictions(model: Model, kind: Vectors, examples: Sequence[Example]) -> list[Prediction]:
    """Predict cosines or ranks with the vectors of the model."""
    columns = ([example.text for example in examples], [example.text_b or "" for example in examples])
    first, second = (
        embedder_of(model, normalize=True, prompt=prompt).encode(texts)
        for texts, prompt in zip(columns, kind.prompts, strict=True)
    )
    return kind.predictions_of(first, second)
