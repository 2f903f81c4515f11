"""The kind of task of a model, including models imported from other libraries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from lightbert.errors import InputError
from lightbert.tasks.kinds import kind_of
from lightbert.tasks.kinds.classify import Classify
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.labels import Labels
from lightbert.tasks.kinds.regress import Regress
from lightbert.tasks.kinds.spans.kind import Spans
from lightbert.tasks.kinds.tokens.kind import Tokens
from lightbert.tasks.predict.inputs import check_count
from lightbert.tasks.texts import TextEncoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_HEADS = ("classify", "regress", "tokens", "beam", "span")
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
    heads = [head for head in _HEADS if head in model.heads]
    if not heads:
        raise InputError("the model has no head for a task: fine-tune it first with `lightbert finetune`")
    head = like.head if like is not None and like.head in heads else heads[0]
    match head:
        case "classify":
            names = _names(model, head, labels)
            multilabel = model.task.get("kind") == Labels.name if model.task else isinstance(like, Labels)
            return Labels(names) if multilabel else Classify(names)
        case "tokens":
            return Tokens(_names(model, head, labels))
        case "regress":
            range_ = (like.low, like.high) if isinstance(like, Regress) else (float("-inf"), float("inf"))
            return Regress(*range_, scaled=False)
    return replace(like, head=head) if isinstance(like, Spans) else Spans(head)


def kind_by_name(model: Described, name: str, labels: Sequence[str] = ()) -> Kind[Any]:
    """The kind of a model, which must be `name` unless that is "auto".

    A classifier that doesn't specify its kind can also be a multi-label one.
    """
    kind = kind_of_model(model, labels)
    if name == Labels.name and isinstance(kind, Classify) and not model.task:
        return Labels(kind.labels)
    if name not in ("auto", kind.name):
        raise InputError(f"kind must be {kind.name!r}, the kind of the model, got {name!r}; leave it out")
    return kind


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
