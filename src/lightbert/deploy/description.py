"""The config.json of an exported folder: Hugging Face's keys, and our description of the file."""

from dataclasses import asdict, replace
from typing import Any

from lightbert.errors import InputError
from lightbert.files import FolderKind
from lightbert.interop.heads import write_heads
from lightbert.interop.huggingface import their_config
from lightbert.interop.problem_types import write_problem
from lightbert.models import Model, folder
from lightbert.models.owned import MODEL_FILES, config_of
from lightbert.tasks.predict.exported import FORMAT, KEY, STATES

EXPORTED_FOLDER = FolderKind(
    "an exported model that lightbert wrote",
    ("model.onnx", "model.pte", "model.pt2", *MODEL_FILES),
    lambda folder: KEY in config_of(folder),
)

_CLASSES = {
    "classify": "ForSequenceClassification",
    "regress": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "mlm": "ForMaskedLM",
    "rtd": "ForPreTraining",
    "nsp": "ForNextSentencePrediction",
    "choice": "ForMultipleChoice",
}
"""Head -> the end of the name of transformers' class; all others are exported as the plain model."""


def exported_config(model: Model, head: str, precision: str) -> dict[str, Any]:
    """The config.json: transformers' keys where it has the family, and our description in one key.

    Runtimes that read Hugging Face folders, such as transformers.js, find the architecture and the labels. The other
    families get the model_type "lightbert".
    """
    kept = {} if head == STATES else {head: model.head_settings[head]}
    description = folder.description(Model(model, replace(model.metadata, head_settings=kept)))
    return {
        **_their_keys(model, head),
        **write_heads(kept, model.labels),
        KEY: {
            "format": FORMAT,
            "head": head,
            "precision": precision,
            "width": model.width,
            "positions": model.positions,
            "reads_padding": model.released_padding,
            "family": description["family"],
            "config": description["config"],
            "heads": kept,
            "labels": list(model.labels),
            "task": model.task,
            "pooling": {} if model.pooling is None else asdict(model.pooling),
        },
    }


def _their_keys(model: Model, head: str) -> dict[str, Any]:
    """The keys of the model without heads: an exported graph may contain heads that transformers' classes don't."""
    try:
        theirs = their_config(Model(model, replace(model.metadata, head_settings={}, labels=(), task={})))
    except InputError:
        return {"model_type": "lightbert"}
    (plain,) = theirs["architectures"]
    problem = write_problem(model.head_settings, model.task)
    return {
        **theirs,
        "architectures": [plain.removesuffix("Model") + _CLASSES.get(head, "Model")],
        **({"problem_type": problem} if problem else {}),
    }
