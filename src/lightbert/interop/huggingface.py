"""Read and write Hugging Face folders of BERT, ELECTRA, ConvBERT and MobileBERT, without transformers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.files import folder_atomic, write_atomic, write_tensors
from lightbert.interop.families import FAMILIES, NATIVE_WORKS, Family, Settings
from lightbert.interop.heads import class_name, read_heads, read_labels, read_problem, write_heads, write_problem
from lightbert.interop.vocabulary import read_tokenizer
from lightbert.interop.weights import read_weights
from lightbert.models import FAMILIES as OUR_FAMILIES
from lightbert.models import Model, build
from lightbert.models.folder import (
    ANY_FOLDER,
    MODEL_FOLDER,
    WRITER,
    check_ids,
    description,
    fill,
    read_config,
    write_tokenizer,
)
from lightbert.models.model import HeadSettings
from lightbert.models.sentence_files import read_sentence_files, sentence_card, write_sentence_files
from lightbert.nn.pooling_settings import PROJECTION


def read(path: str | Path, *, pickled: bool = False, name: str = "") -> Model:
    """Read a folder that transformers wrote.

    ConvBERT and MobileBERT get ``padding = "released"``, because their weights were trained to read the padding.

    pickled: read pickled weights if there are no safetensors.
    name: the name of the model in messages; by default its path.
    """
    folder = Path(path)
    theirs = read_config(folder)
    model_type = theirs.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        supported = ", ".join([*FAMILIES, "lightbert"])
        raise InputError(
            f"model_type in '{folder / 'config.json'}' must be one of {supported}, got {model_type!r}; lightbert has "
            "no such architecture: use a model of one of these"
        )
    family = FAMILIES[model_type]
    ours = family.to_ours(theirs)
    tensors = read_weights(folder, body=model_type, pickled=pickled, name=name or str(folder))
    heads = read_heads(family, ours, theirs, tensors)
    model = build(from_mapping(OUR_FAMILIES[family.ours], ours), heads=heads, device="meta")
    fill(model, family.keymap.to_ours(tensors, model.state_dict(), **_constants(ours)), folder)
    model.labels, model.origin = read_labels(theirs, heads), model_type
    model.task = read_problem(theirs.get("problem_type"), heads, model.labels)
    model.tokenizer = read_tokenizer(folder)
    read_sentence_files(model, folder)
    check_ids(model.tokenizer, model.config.vocab, folder)
    return model.eval()


def write(model: Model, path: str | Path, *, card: str = "", force: bool = False) -> None:
    """Write a folder that transformers reads with its own classes.

    Replaces a folder that lightbert wrote; with ``force``, any folder.
    card: the content of README.md; "" = for a sentence encoder how to use it, otherwise none.
    """
    family, theirs = _describe(model)
    heads = tuple(f"heads.{kind}." for kind in set(model.heads) - set(_their_heads(model)))
    weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith(heads)}
    tensors = family.keymap.to_theirs(weights, **_constants(to_mapping(model.config)))
    if theirs["architectures"] != [f"{family.stem}Model"]:
        body = ("embeddings", "encoder.", "pooler.")
        tensors = {f"{family.model_type}." * name.startswith(body) + name: tensor for name, tensor in tensors.items()}
    with folder_atomic(path, ANY_FOLDER if force else MODEL_FOLDER) as folder:
        write_tensors(folder / "model.safetensors", tensors, metadata={"format": "pt"})
        write_atomic(folder / "config.json", json.dumps(theirs | WRITER, indent=2) + "\n")
        if model.tokenizer is not None:
            write_tokenizer(model.tokenizer, folder, model.positions)
        write_sentence_files(model, folder, card=sentence_card(native=False))
        if card:
            write_atomic(folder / "README.md", card)


def settings_of_head(model: Model, kind: str) -> Settings:
    """Return the settings that a head has in the class of transformers that the model comes from.

    Empty if the model doesn't come from transformers, or if its class has no such head.
    """
    if model.origin not in FAMILIES:
        return {}
    family, ours = FAMILIES[model.origin], to_mapping(model.config)
    try:
        theirs = family.to_theirs(ours, model.head_settings)
    except InputError:
        return {}
    return family.heads(ours, theirs).get(kind, {})


def reason_not_writable(model: Model) -> str:
    """Return why `write` fails for a model from transformers; empty if it works, or for a model of another origin."""
    if model.origin not in FAMILIES:
        return ""
    try:
        _describe(model)
    except InputError as error:
        return str(error)
    return ""


def conversion(model: Model) -> tuple[str, tuple[str, ...]]:
    """The class of transformers for a model, and the options of `lightbert convert --to hf`; "" if there is none.

    A model whose heads transformers doesn't support is converted without them.
    """
    body = Model(model, replace(model.metadata, head_settings={}, labels=(), task={}))
    for candidate, options in ((model, ()), (body, ("--heads", "none"))):
        try:
            return _describe(candidate)[1]["architectures"][0], options
        except InputError:
            continue
    return "", ()


def their_config(model: Model) -> Settings:
    """Return the config.json with which transformers describes a model; an InputError if it can't."""
    return _describe(model)[1]


def _describe(model: Model) -> tuple[Family, Settings]:
    """Return the family to write a model as, preferring its origin, and the config.json."""
    name, ours = description(model)["family"], to_mapping(model.config)
    candidates = [family for family in FAMILIES.values() if family.ours == name and family.fits(ours)]
    if not candidates:
        raise InputError(f"transformers doesn't support the {name} family; {NATIVE_WORKS}")
    candidates.sort(key=lambda family: family.model_type != model.origin)
    heads, errors = _their_heads(model), []
    for family in candidates:
        try:
            family.check_others(ours, to_mapping(OUR_FAMILIES[family.ours]()))
            theirs = family.to_theirs(ours, heads)
            architecture = class_name(family, ours, theirs, heads)
            labels = write_heads(heads, model.labels)
        except InputError as error:
            errors.append(error)
            continue
        problem = write_problem(heads, model.task)
        pad = model.tokenizer.token_to_id("[PAD]") if model.tokenizer is not None else None
        return family, {
            "architectures": [architecture],
            "model_type": family.model_type,
            **theirs,
            **labels,
            **({"problem_type": problem} if problem else {}),
            "pad_token_id": pad or 0,
            "initializer_range": 0.02,
            "tie_word_embeddings": True,
            "dtype": str(model.table.dtype).removeprefix("torch."),
        }
    raise errors[0]


def _their_heads(model: Model) -> HeadSettings:
    """The heads that are written as those of transformers: all but a projection, which is a module of its own."""
    projection = PROJECTION if model.pooling is not None and model.pooling.projection else ""
    return {kind: settings for kind, settings in model.head_settings.items() if kind != projection}


def _constants(ours: dict[str, Any]) -> dict[str, int]:
    # The index of a block's last feed-forward, which only MobileBERT's keymap uses.
    return {"last": ours.get("feedforwards", 1) - 1}
