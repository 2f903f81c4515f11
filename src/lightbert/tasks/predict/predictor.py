"""Predictions and vectors of single texts, lists and streams of any size."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lightbert.data.features import Features
from lightbert.errors import InputError
from lightbert.tasks.example import Example, Question, TaggedSentence, TextEncoder, text_features
from lightbert.tasks.kinds import KINDS, kind_class, kind_of, task_heads
from lightbert.tasks.kinds.kind import Kind, LabelledKind, Outputs, Prediction
from lightbert.tasks.predict.inputs import Fields, check_count, check_pairs, example_of, texts_of
from lightbert.tasks.predict.runtime import Runtime, run

if TYPE_CHECKING:
    from tokenizers import Tokenizer


_DEFAULT_LENGTH = 512


class Names(Protocol):
    """A collection of names, such as the keys of a ``ModuleDict``."""

    def __contains__(self, key: str) -> bool: ...


class Described(Protocol):
    """What prediction needs to know of a model: a `lightbert.models.Model`, or the description of an exported one."""

    @property
    def heads(self) -> Names:
        """The names of the heads."""

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

    def require_tokenizer(self) -> "Tokenizer":
        """Return the tokenizer; raise an InputError if there is none."""


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
    runtime: the inference backend, such as an exported file; None = the model itself.
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

    def predict(self, texts: Any, *, batch: int = 0) -> Any:
        """Predict one text or an iterable of texts.

        A text is a string, a tuple of two strings, or a dictionary with "text" and "text_b", "question" and "context",
        or "words", or with the columns of the training data. One text returns one prediction, an iterable of texts a
        list of predictions.
        """
        if isinstance(texts, str | tuple | Mapping | Example | TaggedSentence | Question):
            return next(self.stream([texts], batch=batch))
        return list(self.stream(texts, batch=batch))

    def stream(self, texts: Iterable[Any], *, batch: int = 0) -> Iterator[Prediction]:
        """Predict texts lazily and yield predictions in order.

        The first chunk is one text, so that the first prediction comes at once; then chunks grow up to `chunk`. Within
        a chunk, texts are batched by length.
        """
        check_count("batch", batch)
        kind, source = self.kind, texts_of(texts)
        runtime = self.runtime or self._torch_runtime(kind.head)
        largest = self.chunk or runtime.chunk
        size = 1
        while chunk := list(itertools.islice(source, size)):
            examples = [self._example(text, kind) for text in chunk]
            yield from self._predictions(kind, runtime, examples, batch or self.batch)
            size = min(_GROWTH * size, largest)

    def _example(self, text: Any, kind: Kind[Any]) -> Any:
        return example_of(text, kind, self._fields.names(text) if isinstance(text, Mapping) else None)

    def _torch_runtime(self, head: str) -> Runtime:
        # Imported here because an exported model is predicted without torch.
        from lightbert.models import Model
        from lightbert.nn.inference import Inference
        from lightbert.tasks.predict.torch_runtime import TorchRuntime
        from lightbert.train.distributed import resolve_device

        if not isinstance(self.model, Model):
            raise InputError("a model that is not a lightbert.models.Model requires a runtime")
        model = self.model if self.device is None else self.model.to(resolve_device(self.device))
        return TorchRuntime(Inference(model, head))

    def _predictions(self, kind: Kind[Any], runtime: Runtime, examples: list[Any], batch: int) -> list[Prediction]:
        check_pairs(examples, self.model.task)
        features = kind.features(examples, self.encoder)
        self.cut += features.cut
        outputs = run(runtime, features, self.encoder.specials, batch)
        return kind.predictions(examples, features, outputs)


Floats = NDArray[np.float32]


class VectorRuntime(Runtime, Protocol):
    """An inference backend that returns one vector per text: a model in torch, or an exported file."""

    @property
    def width(self) -> int:
        """The number of values in a vector."""


class Embedder:
    """Encodes texts and pairs of texts as vectors, in order. A vector doesn't depend on the other texts of its batch.

    encoder: the tokenizer and the maximum row length; longer texts are truncated.
    normalize: scale each vector to length 1.
    prompt: what precedes each text. size: keep the first values of each vector only, before scaling; 0 = all.
    batch: batch size in rows of 128 tokens; 0 = chosen for the device.
    """

    def __init__(
        self,
        runtime: VectorRuntime,
        encoder: TextEncoder,
        *,
        normalize: bool = False,
        prompt: str = "",
        size: int = 0,
        batch: int = 0,
    ) -> None:
        check_count("batch", batch)
        self.runtime, self.encoder, self.normalize, self.batch = runtime, encoder, normalize, batch
        self.prompt, self.width = prompt, size or runtime.width
        """The number of values in a vector."""
        self.cut = 0
        """The number of texts truncated so far."""

    def encode(self, texts: Iterable[str | tuple[str, str] | Example]) -> Floats:
        """Return one vector per text, in order: [N, D]."""
        return np.concatenate([np.zeros((0, self.width), dtype=np.float32), *self.stream(texts)])

    def stream(self, texts: Iterable[str | tuple[str, str] | Example]) -> Iterator[Floats]:
        """Encode any number of texts in bounded memory: yield arrays [n, D] that cover the texts in order."""
        source = iter(texts)
        while chunk := list(itertools.islice(source, self.runtime.chunk)):
            features = self.features([_example(text) for text in chunk])
            self.cut += features.cut
            yield self.finish(run(self.runtime, features, self.encoder.specials, self.batch))

    def features(self, examples: Sequence[Example]) -> Features:
        """Encode examples after the prompt."""
        if self.prompt:
            examples = [replace(example, text=self.prompt + example.text) for example in examples]
        return text_features(examples, self.encoder, None)

    def finish(self, outputs: Outputs) -> Floats:
        """The outputs of the runtime as vectors [N, D]."""
        vectors = np.stack([vector for (vector,) in outputs])[:, : self.width]
        return normalize_vectors(vectors) if self.normalize else vectors


def encode_texts(embedder: Embedder, texts: Any) -> Floats:
    """Encode one text as a vector [D], or an iterable of texts as vectors [N, D]."""
    if isinstance(texts, str | tuple | Example):
        vector: Floats = embedder.encode([texts])[0]
        return vector
    return embedder.encode(texts_of(texts))


def normalize_vectors(vectors: Floats) -> Floats:
    """Scale vectors to length 1; zero vectors are unchanged."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


def _example(text: str | Sequence[str] | Example) -> Example:
    match text:
        case Example():
            return text
        case str():
            return Example(text)
        case (str() as first, str() as second):
            return Example(first, second)
    raise InputError(f"a text must be a string or a pair of strings, got {text!r}")
