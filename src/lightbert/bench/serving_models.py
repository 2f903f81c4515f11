"""The classifier of the load test for both servers: a folder for `lightbert serve`, and one for transformers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightbert.data.corpus import vocabulary
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.load import load
from lightbert.models import PRESETS, build, folder
from lightbert.tasks.kinds.classify.kind import Classify

_KIND = Classify(("bad", "good"))
_LENGTH = 128


@dataclass(frozen=True)
class ServedModel:
    """One model in two layouts."""

    ours: str
    """A name that `lightbert serve` takes."""
    theirs: Path | None
    """A folder that transformers reads."""
    reason: str = ""
    """Why there is none."""


def served_model(name: str, where: Path, texts: Sequence[str]) -> ServedModel:
    """Write a model in the layout of transformers, too; a preset gets random weights and a tokenizer for the texts."""
    if name in PRESETS:
        name = str(_classifier(name, where / "ours", texts))
    try:
        model = load(name)
        if list(model.heads) != ["classify"]:
            raise InputError("transformers' pipeline is compared for classifiers only")
        huggingface.write(model, where / "theirs")
    except InputError as error:
        return ServedModel(name, None, str(error))
    return ServedModel(name, where / "theirs")


def _classifier(preset: str, where: Path, texts: Sequence[str]) -> Path:
    tokenizer = vocabulary.train(texts, "wordpiece", PRESETS[preset].vocab)
    config = replace(PRESETS[preset], vocab=tokenizer.get_vocab_size())
    model = build(config, heads={_KIND.head: {**_KIND.head_settings(), "hidden": "gelu"}}, seed=0)
    model.tokenizer, model.labels = tokenizer, _KIND.labels
    model.task = {**_KIND.description(), "task": "own", "length": _LENGTH}
    folder.save(model, where)
    return where
