"""Predictions of single texts, lists and streams of any size."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lightbert.errors import InputError
from lightbert.nn.pooling_settings import Pool, Pooling
from lightbert.tasks.example import TextEncoder
from lightbert.tasks.kinds import KINDS, kind_class, kind_of, task_heads
from lightbert.tasks.kinds.kind import Kind, LabelledKind, Prediction
from lightbert.tasks.predict.inputs import (
    Fields,
    check_count,
    check_pairs,
    example_of,
    is_single,
    table_records,
    texts_of,
)
from lightbert.tasks.predict.runtime import Runtime, run

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_DEFAULT_LENGTH = 512


class Described(Protocol):
    """What prediction needs to know of a model: a `lightbert.models.Model`, or the description of an exported one."""

    @property
    def heads(self) -> Any:
        """The heads by name."""

    @property
    def head_settings(self) -> Mapping[str, Mapping[str, Any]]:
        """Kind of head -> the settings it was built with."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of a classifier's outputs, in order."""

    @property
    def task(self) -> Mapping[str, Any]:
        """What the model was fine-tuned for."""

    @property
    def positions(self) -> int:
        """The maximum number of tokens per row (0 = unlimited)."""

    @property
    def pooling(self) -> Pooling | None:
        """How a sentence encoder computes vectors."""

    def require_tokenizer(self) -> "Tokenizer":
        """Return the tokenizer; raise an InputError if there is none."""


class VectorRuntime(Runtime, Protocol):
    """An inference backend that returns one vector per text."""

    @property
    def width(self) -> int:
        """The number of values in a vector."""


@runtime_checkable
class HasRuntime(Protocol):
    """A model with a runtime of its own: an exported file."""

    @property
    def runtime(self) -> Runtime:
        """Computes the outputs of its only head."""

    def vector_runtime(self, pool: Pool | None, normalize: bool | None) -> VectorRuntime:
        """Computes vectors that are scaled later; None = as its `pooling` says."""


def runtime_of(model: Described, head: str, device: str | None = None) -> Runtime:
    """What computes the outputs of a head: the exported file, or the model in torch; device None = where it is."""
    if isinstance(model, HasRuntime):
        return model.runtime
    # Imported here because an exported model is used without torch.
    from lightbert.nn.inference import Inference
    from lightbert.tasks.predict.torch_runtime import TorchRuntime, place

    return TorchRuntime(Inference(place(model, device), head))


def kind_of_model(model: Described, labels: Sequence[str] = (), like: Kind[Any] | None = None) -> Kind[Any]:
    """The kind that the model was fine-tuned for, or one inferred from its head and label names.

    labels: names for the outputs of a model without label names, in order.
    like: the kind of the task to evaluate. It decides what an imported model doesn't specify: single- or multi-label,
    the null threshold of question answering, and the range of a regression, which is assumed to be unscaled.
    """
    if model.task and not labels and (kind := kind_of(model.task)).head in model.heads:
        return kind
    heads = [head for head in task_heads() if head in model.heads]
    if not heads:
        raise InputError("the model has no head for a task: fine-tune it first with `lightbert finetune`")
    head = like.head if like is not None and like.head in heads else heads[0]
    types = [kind_type for name in KINDS if head in (kind_type := kind_class(name)).heads]
    name = model.task.get("kind") if model.task else like and like.name
    chosen = next((kind_type for kind_type in types if kind_type.name == name), types[0])
    return chosen.for_head(head, lambda: _names(model, head, labels), like)


def kind_by_name(model: Described, name: str, labels: Sequence[str] = ()) -> Kind[Any]:
    """The kind of a model, which must be `name` unless that is "auto".

    A classifier that doesn't specify its kind can also be a multi-label one.
    """
    kind = kind_of_model(model, labels)
    if name in ("auto", kind.name):
        return kind
    if isinstance(kind, LabelledKind) and not model.task and kind.head in kind_class(name).heads:
        return kind_class(name).for_head(kind.head, lambda: kind.labels, None)
    raise InputError(f"kind must be {kind.name!r}, the kind of the model, got {name!r}; leave it out")


def encoder_of(model: Described, length: int = 0) -> TextEncoder:
    """An encoder with the model's tokenizer and rows of at most `length` tokens.

    0 = the length of fine-tuning, or if that is unknown, the positions of the model, at most 512 (BERT).
    """
    check_count("length", length)
    if 0 < model.positions < length:
        raise InputError(f"length must be <= {model.positions}, the positions of the model, got {length}")
    default = model.task.get("length") or min(model.positions or _DEFAULT_LENGTH, _DEFAULT_LENGTH)
    return TextEncoder(model.require_tokenizer(), length or default)


def _names(model: Described, head: str, labels: Sequence[str]) -> tuple[str, ...]:
    count = model.head_settings[head]["labels"]
    names = tuple(labels) or model.labels or tuple(f"LABEL_{number}" for number in range(count))
    if len(names) != count:
        raise InputError(
            f"the {head} head has {count} outputs and requires as many labels, got {len(names)}: {', '.join(names)}"
        )
    return names


_GROWTH = 4


class Predictor:
    """Predicts texts in order. A prediction doesn't depend on the other texts of its batch.

    batch: batch size in rows of 128 tokens; 0 = chosen for the device.
    device: None = the device of the model. Ignored if a `runtime` is given.
    length: the maximum tokens per row; 0 = as in fine-tuning. Longer texts are truncated, or for tags and answers read
    in windows.
    chunk: the maximum number of texts to read ahead; 0 = chosen for the device.
    runtime: the inference backend; None = that of the model.
    """

    def __init__(
        self,
        model: Described,
        *,
        batch: int = 0,
        device: str | None = "auto",
        length: int = 0,
        chunk: int = 0,
        runtime: Runtime | None = None,
    ) -> None:
        check_count("batch", batch)
        check_count("chunk", chunk)
        self.model, self.device = model, device
        self.batch, self.chunk, self.runtime = batch, chunk, runtime
        self.encoder = encoder_of(model, length)
        """The tokenizer and the maximum row length."""
        self._fields = Fields.of(model.task, allow_pairs=True)
        self.cut = 0
        """The number of texts truncated so far."""

    @property
    def kind(self) -> Kind[Any]:
        """The kind of task of the model."""
        return kind_of_model(self.model)

    def predict(self, texts: Any) -> Any:
        """Predict one text or an iterable of texts.

        A text is a string, a tuple of two strings, or a dictionary with "text" and "text_b", "question" and "context",
        or "words", or with the columns of the training data. One text returns one prediction, an iterable of texts or a
        table (pandas, polars, pyarrow) a list of predictions.
        """
        if is_single(texts):
            return next(self.stream([texts]))
        if hasattr(texts, "columns"):
            texts = table_records(texts, self._fields, self.kind.name)
        return list(self.stream(texts))

    def stream(self, texts: Iterable[Any]) -> Iterator[Prediction]:
        """Predict texts lazily and yield predictions in order.

        The first chunk is one text, so that the first prediction comes at once; then chunks grow up to `chunk`. Within
        a chunk, texts are batched by length.
        """
        kind, source = self.kind, texts_of(texts)
        runtime = self.runtime or runtime_of(self.model, kind.head, self.device)
        largest = self.chunk or runtime.chunk
        size = 1
        while chunk := list(itertools.islice(source, size)):
            examples = [self._example(text, kind) for text in chunk]
            yield from self._predictions(kind, runtime, examples)
            size = min(_GROWTH * size, largest)

    def _example(self, text: Any, kind: Kind[Any]) -> Any:
        return example_of(text, kind, self._fields.names(text) if isinstance(text, Mapping) else None)

    def _predictions(self, kind: Kind[Any], runtime: Runtime, examples: list[Any]) -> list[Prediction]:
        check_pairs(examples, self.model.task)
        features = kind.features(examples, self.encoder)
        self.cut += features.cut
        outputs = run(runtime, features, self.encoder.specials, self.batch)
        return kind.predictions(examples, features, outputs)
