"""Save and load model folders: model.safetensors, config.json, and optionally a tokenizer and a pooling."""

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError, unknown
from lightbert.files import folder_atomic, read_tensors, write_atomic, write_tensors
from lightbert.models import FAMILIES, Model, build
from lightbert.models.owned import ANY_FOLDER, MODEL_FOLDER
from lightbert.models.pooling import read_pooling, write_pooling
from lightbert.models.tokenizer import check_ids, read_tokenizer, write_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 1
# The key with which `lightbert export` describes a file in config.json (tasks/predict/exported.py).
_EXPORTED = "lightbert"


@dataclass(frozen=True)
class _Extra:
    """The optional entries of config.json."""

    labels: tuple[str, ...] = ()
    task: dict[str, Any] = field(default_factory=dict)
    origin: str = ""
    ranges: dict[str, Any] = field(default_factory=dict)


def description(model: Model) -> dict[str, Any]:
    """Return the content of a model's config.json; transformers identifies the model by ``model_type``."""
    family = next(name for name, config in FAMILIES.items() if isinstance(model.config, config))
    content = {
        "format": FORMAT,
        "model_type": "lightbert",
        "family": family,
        "config": to_mapping(model.config),
        "heads": model.head_settings,
    }
    if model.labels:
        content["labels"] = list(model.labels)
    if model.task:
        content["task"] = model.task
    if model.origin:
        content["origin"] = model.origin
    if model.ranges:
        content["ranges"] = {name: list(values) for name, values in model.ranges.items()}
    return content


def save(
    model: Model, path: str | Path, tokenizer: "Tokenizer | None" = None, *, card: str = "", force: bool = False
) -> None:
    """Write a model folder atomically, replacing a folder that lightbert wrote.

    card: the content of README.md; "" = write none. force: replace any folder.
    """
    tokenizer = tokenizer or model.tokenizer
    with folder_atomic(path, ANY_FOLDER if force else MODEL_FOLDER) as folder:
        write_tensors(folder / "model.safetensors", model.state_dict(), metadata={"format": "pt"})
        write_atomic(folder / "config.json", json.dumps(description(model), indent=2) + "\n")
        if tokenizer is not None:
            write_tokenizer(tokenizer, folder, model.positions)
        if model.pooling is not None:
            write_pooling(model.pooling, folder, model.width)
        if card:
            write_atomic(folder / "README.md", card)


def load(path: str | Path) -> Model:
    """Read a model folder that :func:`save` wrote."""
    folder = Path(path)
    model = from_description(read_config(folder), folder)
    fill(model, read_tensors(folder / "model.safetensors"), folder / "model.safetensors")
    model.tokenizer, model.pooling = read_tokenizer(folder), read_pooling(folder)
    check_ids(model.tokenizer, model.config.vocab, folder)
    return model.eval()


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a folder."""
    path = folder / "config.json"
    if folder.is_file():
        raise InputError(f"'{folder}' is a file; give the folder with config.json and the weights")
    if not folder.is_dir():
        raise InputError(f"model folder '{folder}' not found; give a folder with config.json, or the name of a preset")
    if not path.is_file():
        raise _not_a_model_error(folder)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is not a JSON object; copy it again")
    if _EXPORTED in content:
        raise InputError(f"'{folder}' is an exported model; give the folder of the model that it was exported from")
    return content


def _not_a_model_error(folder: Path) -> InputError:
    """Return an error that points to the models of a run, if the folder is one."""
    if (folder / "final" / "config.json").is_file():
        return InputError(f"'{folder}' is a run folder; its model is '{folder / 'final'}'")
    if models := sorted(folder.glob("runs/*/final/config.json")):
        return InputError(f"'{folder}' is a folder of several runs; the model of the first run is '{models[0].parent}'")
    if (folder / "recipe.json").is_file():
        return InputError(f"'{folder}' is the folder of an unfinished run; its model will be in 'final'")
    return InputError(f"'{folder}' is not a model folder: config.json not found; give a folder that save wrote")


def from_description(content: dict[str, Any], where: Path) -> Model:
    """Build the model that a config.json describes, without weights (on the meta device)."""
    if content.get("format") != FORMAT:
        raise InputError(f"the format of '{where}' must be {FORMAT}, got {content.get('format')!r}; update lightbert")
    family, heads = str(content.get("family", "")), content.get("heads", {})
    if not isinstance(heads, dict) or not all(isinstance(settings, dict) for settings in heads.values()):
        raise InputError(f"'heads' in the config of '{where}' must be an object of objects, got {heads!r}")
    try:
        if family not in FAMILIES:
            raise unknown("model family", family, FAMILIES)
        model = build(from_mapping(FAMILIES[family], content.get("config", {})), heads=heads, device="meta")
    except InputError as error:
        raise InputError(f"'{where}': {error}") from None
    keys = [each.name for each in fields(_Extra)]
    extra = from_mapping(_Extra, {key: content[key] for key in keys if key in content})
    model.labels, model.task, model.origin = extra.labels, extra.task, extra.origin
    layers = {name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    for name in extra.ranges:
        if name not in layers:
            raise InputError(
                f"the config of '{where}' has a range for '{name}', which is not a linear layer; copy it again"
            )
    model.ranges = {name: _range(name, values, where) for name, values in extra.ranges.items()}
    return model


def _range(layer: str, values: Any, where: Path) -> tuple[float, float]:
    """Check the range of a layer's input."""
    try:
        low, high = (float(each) for each in values)
    except (TypeError, ValueError):
        low = high = float("nan")
    if not low < high:
        raise InputError(
            f"the range of '{layer}' in the config of '{where}' must be two increasing numbers, got {values!r}"
        )
    return low, high


def fill(model: Model, tensors: dict[str, Tensor], where: Path) -> None:
    """Load weights into a model on the meta device; names and shapes must match exactly."""
    expected = model.state_dict()
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or extra:
        problem = f"'{missing[0]}' is missing" if missing else f"'{extra[0]}' is unexpected"
        count = len(missing) + len(extra)
        raise InputError(f"the weights '{where}' don't match config.json: {problem} ({count} names differ)")
    dtype = next(iter(tensors.values())).dtype
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.dtype != dtype:
            raise InputError(
                f"the weights '{where}' must have one floating-point dtype, got {_short(dtype)} and for '{name}' "
                f"{_short(tensor.dtype)}; convert them"
            )
        if not tensor.isfinite().all():
            raise InputError(
                f"the weights '{where}' must be finite, but '{name}' contains NaN or infinity; copy them again"
            )
        if tensor.shape != expected[name].shape:
            have, want = list(tensor.shape), list(expected[name].shape)
            raise InputError(
                f"the weights '{where}' don't match config.json: '{name}' must have the shape {want}, got {have}"
            )
    model.load_state_dict({name: torch.nn.Parameter(tensor) for name, tensor in tensors.items()}, assign=True)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
