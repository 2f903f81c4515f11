"""The kind of task that a model answers, also when it comes from elsewhere and was never told by us."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lightbert.errors import InputError
from lightbert.models import Model
from lightbert.tasks.kinds import kind_of
from lightbert.tasks.kinds.classify.kind import Classify
from lightbert.tasks.kinds.kind import Kind
from lightbert.tasks.kinds.labels.kind import Labels
from lightbert.tasks.kinds.regress.kind import Regress
from lightbert.tasks.kinds.spans.kind import Spans
from lightbert.tasks.kinds.tokens.kind import Tokens
from lightbert.tasks.texts import TextEncoder

_HEADS = ("classify", "regress", "tokens", "beam", "span")
_LONGEST = 512


def kind_of_model(model: Model, labels: Sequence[str] = (), like: Kind[Any] | None = None) -> Kind[Any]:
    """The kind that the model was fine-tuned for, or one made of its head and the names of its labels.

    labels: names for the outputs of a model that has none, in their order.
    like: the kind it is meant for. It decides what neither weights nor config tell: one label or several, from where on
    a question is left unanswered, and within which limits numbers are, which other libraries are taken to have learned
    unscaled.
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
            several = model.task.get("kind") == Labels.name if model.task else isinstance(like, Labels)
            return Labels(names) if several else Classify(names)
        case "tokens":
            return Tokens(_names(model, head, labels))
        case "regress":
            limits = (like.low, like.high) if isinstance(like, Regress) else (float("-inf"), float("inf"))
            return Regress(*limits, scaled=False)
    return replace(like, head=head) if isinstance(like, Spans) else Spans(head)


def encoder_of(model: Model, length: int = 0) -> TextEncoder:
    """The model's tokenizer, with rows of at most `length` tokens.

    0 = as in fine-tuning, or where that is unknown as many as the model can read, up to BERT's 512.
    """
    if 0 < model.positions < length:
        raise InputError(f"length must be <= {model.positions}, the positions of the model, got {length}")
    longest = model.task.get("length") or min(model.positions or _LONGEST, _LONGEST)
    return TextEncoder(model.require_tokenizer(), length or longest)


def _names(model: Model, head: str, labels: Sequence[str]) -> tuple[str, ...]:
    count = model.head_settings[head]["labels"]
    names = tuple(labels) or model.labels or tuple(f"LABEL_{number}" for number in range(count))
    if len(names) != count:
        raise InputError(f"the {head} head has {count} outputs, but there are {len(names)} labels: {', '.join(names)}")
    return names
