"""Map the model classes of transformers, their labels and their `problem_type` to our heads and tasks."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lightbert.errors import InputError, unknown
from lightbert.interop.families import NATIVE_WORKS, TEXT_HEADS, Family, Heads, Settings
from lightbert.interop.keymap import quote_names

# A class may appear twice: its heads depend on the family, or on the number of labels.
_CLASSES: tuple[tuple[str, set[str]], ...] = (
    ("Model", set()),
    ("ForMaskedLM", {"mlm"}),
    ("ForPreTraining", {"mlm", "nsp"}),
    ("ForPreTraining", {"rtd"}),
    ("ForNextSentencePrediction", {"nsp"}),
    *(("ForSequenceClassification", {head}) for head in TEXT_HEADS),
    ("ForTokenClassification", {"tokens"}),
    ("ForMultipleChoice", {"choice"}),
    ("ForQuestionAnswering", {"span"}),
)
# The tensor names that identify a head. `classifier` is ambiguous: there the class name decides.
_HEAD_PREFIXES = {
    "mlm": ("cls.predictions.", "generator_predictions.", "generator_lm_head."),
    "nsp": ("cls.seq_relationship.",),
    "rtd": ("discriminator_predictions.",),
    "span": ("qa_outputs.",),
}
_CLASSIFIERS = {
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "tokens",
    "ForMultipleChoice": "choice",
}
# The heads that our own classes for transformers (`auto/models.py`) load from a native folder.
_IN_NATIVE_FOLDERS = {"mlm", *TEXT_HEADS, "tokens", "span"}
_POOLED = {"nsp", *TEXT_HEADS, "choice"}
_WITH_LABELS = {"classify", "tokens"}
_WITH_DROPOUT = {*TEXT_HEADS, "choice", "tokens"}
# What every class of transformers computes; heads that don't specify it compute the same.
_COMMON = {"pool": "cls"}
# The settings that are keys of a fine-tuning recipe.
_KEYS = {"hidden", "pool"}
_REGRESSION = "regression"
_MULTI_LABEL = "multi_label_classification"
_KINDS = {"single_label_classification": "classify", _MULTI_LABEL: "labels"}
"""`problem_type` -> the kind of task of a model with the classification head."""


def read_heads(family: Family, ours: Settings, theirs: Settings, tensors: Mapping[str, Tensor]) -> Heads:
    """Return the heads of a checkpoint, identified by its tensors, with our settings for each."""
    theirs = family.with_defaults(theirs)
    possible = family.heads(ours, theirs)
    heads: Heads = {}
    for kind in _kinds(theirs, tensors):
        if kind not in possible:
            reason = (
                f" with hidden_act = {theirs['hidden_act']!r}, only with 'gelu'" if kind in family.gelu_heads else ""
            )
            raise InputError(
                f"lightbert doesn't support the {kind} head of transformers' {family.stem}{reason}; save the model "
                "without it"
            )
        if kind == "mlm" and theirs.get("tie_word_embeddings") is False:
            raise InputError(
                "'tie_word_embeddings' must be true in config.json, got false; untied MLM heads are not supported"
            )
        heads[kind] = dict(possible[kind])
        if kind in _WITH_LABELS:
            heads[kind]["labels"] = _outputs(tensors)
        if kind in _WITH_DROPOUT:
            dropout = theirs.get("classifier_dropout")
            heads[kind]["dropout"] = float(theirs["hidden_dropout_prob"] if dropout is None else dropout)
    return heads


def class_name(family: Family, ours: Settings, theirs: Settings, heads: Heads) -> str:
    """Return the class of transformers that has exactly these heads and computes the same.

    A pooler is always allowed: classes that don't use it ignore it with a message.
    """
    possible = family.heads(ours, theirs)
    kinds = set(heads) - {"pooler"}
    suffixes = [suffix for suffix, needs in _CLASSES if needs == kinds]
    if not suffixes or not set(heads) <= set(possible):
        remedy = "fine-tune with answers.head=span, or " if "beam" in kinds else ""
        only_here = sorted(set(heads) - _IN_NATIVE_FOLDERS)
        without = f", without the heads {quote_names(only_here)}" if only_here else ""
        raise InputError(
            f"transformers has no {family.stem} class with the heads {quote_names(sorted(heads))}; {remedy}drop some "
            f"or all heads with --heads, such as --heads none; {NATIVE_WORKS}{without}"
        )
    for kind, settings in heads.items():
        actual = {**_COMMON, **settings}
        for name, value in {**_COMMON, **possible[kind]}.items():
            if actual.get(name) != value:
                remedy = f"fine-tune with head.{name}={value or 'none'}, or " if name in _KEYS else ""
                raise InputError(
                    f"{name} of the {kind} head must be {value!r} in {family.stem}{suffixes[0]}, got "
                    f"{actual.get(name)!r}; {remedy}drop the head with --heads none; {NATIVE_WORKS}"
                )
    return family.stem + suffixes[0]


def write_heads(heads: Heads, labels: tuple[str, ...]) -> Settings:
    """Return the keys of config.json that describe the heads, except the class name."""
    settings: Settings = {}
    for kind in heads:
        if kind in _WITH_LABELS:
            count = heads[kind]["labels"]
            names = labels or default_label_names(count)
            if len(names) != count:
                raise InputError(
                    f"the {kind} head has {count} labels, but {len(names)} names: {quote_names(list(names))}"
                )
            settings["id2label"] = {str(index): name for index, name in enumerate(names)}
            settings["label2id"] = {name: index for index, name in enumerate(names)}
        if kind == text_head(1):
            settings |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        if kind in _WITH_DROPOUT:
            settings["classifier_dropout"] = heads[kind].get("dropout", 0.1)
    return settings


def text_head(outputs: int) -> str:
    """Return the head of ForSequenceClassification with this number of outputs."""
    return TEXT_HEADS[outputs == 1]


def class_suffix(head: str) -> str:
    """Return the end of the name of transformers' class with this head; "Model" if there is none."""
    return next((suffix for suffix, kinds in _CLASSES if kinds == {head}), "Model")


def default_label_names(count: int) -> tuple[str, ...]:
    """Return transformers' names of labels without names."""
    return tuple(f"LABEL_{index}" for index in range(count))


def read_labels(theirs: Settings, heads: Heads) -> tuple[str, ...]:
    """Return the names of the labels; empty if they are the default names or don't belong to the heads."""
    labels = theirs.get("id2label") or {}
    if not isinstance(labels, dict) or not all(isinstance(name, (str, int)) for name in labels.values()):
        raise InputError(
            f'\'id2label\' in config.json must be an object of names, got {labels!r}; write it as {{"0": "name", …}}, '
            "or remove it"
        )
    names = {int(index): str(name) for index, name in labels.items() if index.isdecimal()}
    counts = {heads[kind]["labels"] for kind in _WITH_LABELS & set(heads)}
    if counts != {len(names)} or set(names) != set(range(len(names))):
        return ()
    ordered = tuple(names[index] for index in range(len(names)))
    return () if ordered == default_label_names(len(names)) else ordered


def read_problem(problem: str | None, heads: Heads, labels: tuple[str, ...]) -> dict[str, Any]:
    """Return a model's `task` for a `problem_type`; empty if it is None, or if the head determines it.

    transformers sets `problem_type` when a classifier is trained on its first batch.
    """
    if problem is None or not set(TEXT_HEADS) & set(heads):
        return {}
    if problem != _REGRESSION and problem not in _KINDS:
        raise unknown("problem_type", problem, [_REGRESSION, *_KINDS])
    outputs = heads["classify"]["labels"] if "classify" in heads else 1
    if problem == (_MULTI_LABEL if outputs == 1 else _REGRESSION):
        count = "one output" if outputs == 1 else f"{outputs} outputs"
        raise InputError(
            f"lightbert doesn't support problem_type {problem!r} with {count}; save the model without its head"
        )
    if outputs == 1:
        return {}
    return {"kind": _KINDS[problem], "labels": list(labels or default_label_names(outputs))}


def write_problem(heads: Heads, task: dict[str, Any]) -> str | None:
    """Return the `problem_type` of a model with these heads and this `task`; None if it is undetermined."""
    if text_head(1) in heads:
        return _REGRESSION
    matching = (problem for problem, kind in _KINDS.items() if kind == task.get("kind"))
    return next(matching, None) if "classify" in heads else None


def _kinds(theirs: Settings, tensors: Mapping[str, Tensor]) -> list[str]:
    kinds = [kind for kind, prefixes in _HEAD_PREFIXES.items() if any(name.startswith(prefixes) for name in tensors)]
    if any(name.startswith("classifier.") for name in tensors):
        kinds.append(_classifier(theirs, tensors))
    pooled = any(name.startswith("pooler.") for name in tensors)
    return [*kinds, "pooler"] if pooled and not _POOLED & set(kinds) else kinds


def _classifier(theirs: Settings, tensors: Mapping[str, Tensor]) -> str:
    suffixes = [suffix for suffix in _CLASSIFIERS for name in theirs.get("architectures") or () if suffix in name]
    if not suffixes and "classifier.out_proj.weight" not in tensors:
        raise InputError(
            "the layer 'classifier' is ambiguous without 'architectures' in config.json; add a class whose name "
            f"ends in {quote_names(list(_CLASSIFIERS))}"
        )
    kind = _CLASSIFIERS[suffixes[0]] if suffixes else "classify"
    return text_head(_outputs(tensors)) if kind == "classify" else kind


def _outputs(tensors: Mapping[str, Tensor]) -> int:
    for name in ("classifier.weight", "classifier.out_proj.weight"):
        if name in tensors:
            return tensors[name].shape[0]
    raise InputError("the checkpoint has no tensor 'classifier.weight'; it is incomplete, so copy it again")
