"""Which class of transformers has which of our heads."""

from collections.abc import Mapping

from torch import Tensor

from lightbert.errors import InputError
from lightbert.interop.families import NATIVE_WORKS, Family, Heads, Settings
from lightbert.interop.keymap import quote_names

# A class may appear twice: what it is depends on the family, or on the number of labels.
_CLASSES: tuple[tuple[str, set[str]], ...] = (
    ("Model", set()),
    ("ForMaskedLM", {"mlm"}),
    ("ForPreTraining", {"mlm", "nsp"}),
    ("ForPreTraining", {"rtd"}),
    ("ForNextSentencePrediction", {"nsp"}),
    ("ForSequenceClassification", {"classify"}),
    ("ForSequenceClassification", {"regress"}),
    ("ForTokenClassification", {"tokens"}),
    ("ForMultipleChoice", {"choice"}),
    ("ForQuestionAnswering", {"span"}),
)
# The layers that give a head away. `classifier` serves several: there the class name decides.
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
_POOLED = {"nsp", "classify", "regress", "choice"}
_WITH_LABELS = {"classify", "tokens"}
_WITH_DROPOUT = {"classify", "regress", "choice", "tokens"}


def read_heads(family: Family, ours: Settings, theirs: Settings, tensors: Mapping[str, Tensor]) -> Heads:
    """The heads a checkpoint holds, told by its tensors, with our settings for each."""
    theirs = family.with_defaults(theirs)
    possible = family.heads(ours, theirs)
    heads: Heads = {}
    for kind in _kinds(theirs, tensors):
        if kind not in possible:
            raise InputError(f"lightbert has no {kind} head like the one of transformers' {family.stem}; save the body")
        if kind == "mlm" and theirs.get("tie_word_embeddings") is False:
            raise InputError(
                "'tie_word_embeddings' is false in config.json: lightbert ties its MLM head to the word table"
            )
        heads[kind] = dict(possible[kind])
        if kind in _WITH_LABELS:
            heads[kind]["labels"] = _outputs(tensors)
        if kind in _WITH_DROPOUT:
            dropout = theirs.get("classifier_dropout")
            heads[kind]["dropout"] = float(theirs["hidden_dropout_prob"] if dropout is None else dropout)
    return heads


def class_name(family: Family, ours: Settings, theirs: Settings, heads: Heads) -> str:
    """The class of transformers that has exactly these heads and computes them as ours does.

    A pooler may stand beside any of them: classes that don't use it say so and go on.
    """
    possible = family.heads(ours, theirs)
    kinds = set(heads) - {"pooler"}
    suffixes = [suffix for suffix, needs in _CLASSES if needs == kinds]
    if not suffixes or not set(heads) <= set(possible):
        raise InputError(
            f"transformers has no {family.stem} class with the heads {quote_names(sorted(heads))}; choose which to "
            f"keep, or none; {NATIVE_WORKS}"
        )
    for kind in heads:
        for name, value in possible[kind].items():
            if heads[kind].get(name) != value:
                raise InputError(
                    f"{family.stem}{suffixes[0]} has {name} {value!r} in its {kind} head where this model has "
                    f"{heads[kind].get(name)!r}; leave the head out; {NATIVE_WORKS}"
                )
    return family.stem + suffixes[0]


def write_heads(heads: Heads, labels: tuple[str, ...]) -> Settings:
    """What config.json says of the heads, beyond the class name."""
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
        if kind == "regress":
            settings |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        if kind in _WITH_DROPOUT:
            settings["classifier_dropout"] = heads[kind].get("dropout", 0.1)
    return settings


def default_label_names(count: int) -> tuple[str, ...]:
    """What transformers calls labels that have no names."""
    return tuple(f"LABEL_{index}" for index in range(count))


def read_labels(theirs: Settings, heads: Heads) -> tuple[str, ...]:
    """The names of the labels, empty if they are the default names or don't belong to the heads."""
    names = {int(index): str(name) for index, name in (theirs.get("id2label") or {}).items() if str(index).isdigit()}
    counts = {heads[kind]["labels"] for kind in _WITH_LABELS & set(heads)}
    if counts != {len(names)} or set(names) != set(range(len(names))):
        return ()
    ordered = tuple(names[index] for index in range(len(names)))
    return () if ordered == default_label_names(len(names)) else ordered


def _kinds(theirs: Settings, tensors: Mapping[str, Tensor]) -> list[str]:
    kinds = [kind for kind, signs in _HEAD_PREFIXES.items() if any(name.startswith(signs) for name in tensors)]
    if any(name.startswith("classifier.") for name in tensors):
        kinds.append(_classifier(theirs, tensors))
    pooled = any(name.startswith("pooler.") for name in tensors)
    return [*kinds, "pooler"] if pooled and not _POOLED & set(kinds) else kinds


def _classifier(theirs: Settings, tensors: Mapping[str, Tensor]) -> str:
    suffixes = [suffix for suffix in _CLASSIFIERS for name in theirs.get("architectures") or () if suffix in name]
    if not suffixes and "classifier.out_proj.weight" not in tensors:
        raise InputError(
            "config.json does not say what the layer 'classifier' is for: name the class under 'architectures', "
            f"one that ends in {quote_names(list(_CLASSIFIERS))}"
        )
    kind = _CLASSIFIERS[suffixes[0]] if suffixes else "classify"
    return "regress" if kind == "classify" and _outputs(tensors) == 1 else kind


def _outputs(tensors: Mapping[str, Tensor]) -> int:
    for name in ("classifier.weight", "classifier.out_proj.weight"):
        if name in tensors:
            return tensors[name].shape[0]
    raise InputError("the checkpoint lacks 'classifier.weight'; it is incomplete")
