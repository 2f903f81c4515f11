"""Save and load model folders: model.safetensors, config.json, and optionally a tokenizer, a pooling and a card."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from lightbert import files
from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError, unknown
from lightbert.files import FolderKind, folder_atomic, read_json, read_tensors, read_text, write_atomic, write_tensors
from lightbert.models import FAMILIES, Config, Model, build
from lightbert.models.architecture import Architecture
from lightbert.models.hybrid import HYBRID, read_hybrid, renamed
from lightbert.models.sentence_files import check_pooling, read_sentence_files, sentence_card, write_sentence_files
from lightbert.nn.words import Words

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 1
_WEIGHTS = "model.safetensors"
# The key with which `lightbert export` describes a file in config.json (tasks/predict/exported.py).
_EXPORTED = "lightbert"
_SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}

WRITER = {"writer": "lightbert"}
"""An entry of config.json in the layout of Hugging Face, where transformers ignores it."""

_CARD = ("README.md", ".gitattributes")
_SENTENCE_TRANSFORMERS = (
    "modules.json",
    "*_config.json",
    "config_*.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
)


MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", *_CARD, *_SENTENCE_TRANSFORMERS)


def config_of(folder: Path) -> dict[str, Any]:
    """Return the content of config.json, or an empty dictionary if it can't be read."""
    try:
        config = json.loads(read_text(folder / "config.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _is_ours(folder: Path) -> bool:
    config = config_of(folder)
    return config.get("model_type") == "lightbert" or WRITER.items() <= config.items()


MODEL_FOLDER = FolderKind("a model folder that lightbert wrote", ("model.safetensors", *MODEL_FILES), _is_ours)

ANY_FOLDER = FolderKind("a folder", ("*",))


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
    layers = _linear_layers(model)
    # A head that was removed leaves its ranges.
    ranges = {name: list(values) for name, values in model.ranges.items() if name in layers}
    optional = {"labels": list(model.labels), "task": model.task, "origin": model.origin, "ranges": ranges}
    return content | {key: value for key, value in optional.items() if value}


def save(
    model: nn.Module, path: str | Path, tokenizer: "Tokenizer | None" = None, *, card: str = "", force: bool = False
) -> None:
    """Write a model folder atomically, replacing a folder that lightbert wrote.

    model: may be wrapped by torch.compile, DataParallel or DistributedDataParallel. Nothing is written if its layers
    were changed so that :func:`load` couldn't read it.
    card: the content of README.md; "" = for a sentence encoder how to use it, otherwise none.
    force: replace any folder.
    """
    model = _unwrapped(model)
    tokenizer = tokenizer or model.tokenizer
    weights, config = model.state_dict(), json.dumps(description(model), indent=2)
    _check_loadable(weights, config, Path(path))
    check_pooling(model)
    with folder_atomic(path, ANY_FOLDER if force else MODEL_FOLDER) as folder:
        write_tensors(folder / _WEIGHTS, weights, metadata={"format": "pt"})
        write_atomic(folder / "config.json", config + "\n")
        if tokenizer is not None:
            write_tokenizer(tokenizer, folder, model.positions)
        write_sentence_files(model, folder, card=sentence_card(native=True))
        if card:
            write_atomic(folder / "README.md", card)


def _unwrapped(model: nn.Module) -> Model:
    """Return the model inside the wrappers of torch.compile, DataParallel and DistributedDataParallel."""
    inner: object = model
    while inner is not None and not isinstance(inner, Model):
        inner = getattr(inner, "_orig_mod", getattr(inner, "module", None))
    if inner is None:
        raise InputError(
            f"model must be a lightbert model, got {type(model).__name__}; give one that lightbert.build or "
            "lightbert.load returned"
        )
    return inner


def _check_loadable(weights: Mapping[str, Tensor], config: str, where: Path) -> None:
    """Check that `load` can put the weights into the model that a config.json describes."""
    expected = from_description(json.loads(config), where).state_dict()
    if problem := difference(weights, expected):
        raise InputError(
            f"the weights of the model don't match its config and heads: {problem}; undo changes of its layers, as "
            "prune.remove does, or change model.config and model.head_settings to match"
        )
    _check_dtype(weights, expected, where)


def load(path: str | Path) -> Model:
    """Read a model folder that :func:`save` wrote, or ``save_pretrained`` of transformers, also in several files."""
    folder = Path(path)
    content = read_config(folder)
    model = from_description(content, folder)
    paths = weight_files(folder, _WEIGHTS) or [folder / _WEIGHTS]
    tensors = {name: tensor for path in paths for name, tensor in read_tensors(path).items()}
    if content.get("family") == HYBRID and model.config.block_width:
        tensors = {renamed(name): tensor for name, tensor in tensors.items()}
    fill(model, tensors, folder)
    model.tokenizer = read_tokenizer(folder)
    read_sentence_files(model, folder)
    check_ids(model.tokenizer, model.config.vocab, folder)
    return model.eval()


def weight_files(folder: Path, single: str) -> list[Path]:
    """Return the file of that name, or the files that its index lists; empty if there is neither."""
    if (folder / single).exists():
        return [folder / single]
    index = folder / f"{single}.index.json"
    if not index.exists():
        return []
    listed = read_json(index).get("weight_map")
    if not isinstance(listed, dict):
        raise InputError(f"'{index}' must contain a 'weight_map' object; copy it again")
    names = sorted({str(name) for name in listed.values()})
    for name in names:
        if Path(name).name != name or name == "..":
            raise InputError(f"'{index}' must name files in its folder, got '{name}'; copy the folder again")
    return [folder / name for name in names]


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.json of a folder."""
    path = folder / "config.json"
    if folder.is_file():
        raise InputError(f"'{folder}' is a file; give the folder with config.json and the weights")
    if not folder.is_dir():
        raise InputError(f"model folder '{folder}' not found; give a folder with config.json, or the name of a preset")
    if not path.exists():
        raise _not_a_model_error(folder)
    content: dict[str, Any] = read_json(path)
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
        if family not in FAMILIES and family != HYBRID:
            raise unknown("model family", family, FAMILIES)
        model = build(_saved_config(family, content.get("config", {})), heads=heads, device="meta")
    except InputError as error:
        raise InputError(f"'{where}': {error}") from None
    keys = [entry.name for entry in fields(_Extra)]
    extra = from_mapping(_Extra, {key: content[key] for key in keys if key in content})
    model.labels, model.task, model.origin = extra.labels, extra.task, extra.origin
    layers = _linear_layers(model)
    for name in extra.ranges:
        if name not in layers:
            raise InputError(
                f"the config of '{where}' has a range for '{name}', which is not a linear layer; copy it again"
            )
    model.ranges = {name: _range(name, values, where) for name, values in extra.ranges.items()}
    return model


def _saved_config(family: str, saved: Any) -> Config:
    """Read a config, also that of an earlier version."""
    if family == HYBRID and isinstance(saved, Mapping):
        return read_hybrid(saved)
    if isinstance(saved, Mapping) and saved.get("local", "none") != "none" and "relative" not in saved:
        # Local attention had no terms then, whatever their keys said.
        saved = {**saved, "relative": "none", "depthwise": False, "convolved": ""}
    return from_mapping(FAMILIES.get(family, Architecture), saved)


def _linear_layers(model: Model) -> set[str]:
    return {name for name, part in model.named_modules() if isinstance(part, nn.Linear)}


def _range(layer: str, values: Any, where: Path) -> tuple[float, float]:
    """Check the range of a layer's input."""
    try:
        low, high = map(float, values)
    except (TypeError, ValueError):
        low = high = float("nan")
    if not low < high:
        raise InputError(
            f"the range of '{layer}' in the config of '{where}' must be two increasing numbers, got {values!r}"
        )
    return low, high


def fill(model: Model, tensors: dict[str, Tensor], where: Path) -> None:
    """Load weights into a model on the meta device; names and shapes must match exactly."""
    if problem := difference(tensors, model.state_dict()):
        raise InputError(f"the weights '{where}' don't match config.json: {problem}; use those that were saved with it")
    _check_dtype(tensors, model.state_dict(), where)
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise InputError(
                f"the weights '{where}' must be finite, but '{name}' contains NaN or infinity; copy them again"
            )
    parameters = dict(model.named_parameters())
    state = {name: nn.Parameter(tensor) if name in parameters else tensor for name, tensor in tensors.items()}
    model.load_state_dict(state, assign=True)
    for name, part in model.named_modules():
        if isinstance(part, Words) and not ((part.slots >= 0) & (part.slots < len(part.keys))).all():
            raise InputError(f"the slots of '{name}' in '{where}' must be rows of its pairs; copy the folder again")


def difference(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Describe the first tensor whose name or shape differs, and count them all; "" if there is none."""
    differing = [
        name
        for name in {**expected, **tensors}
        if name not in tensors or name not in expected or tensors[name].shape != expected[name].shape
    ]
    if not differing:
        return ""
    first = differing[0]
    if first not in tensors:
        problem = "is missing"
    elif first not in expected:
        problem = "is unexpected"
    else:
        problem = f"must have the shape {list(expected[first].shape)}, got {list(tensors[first].shape)}"
    count = "1 tensor differs" if len(differing) == 1 else f"{len(differing)} tensors differ"
    return f"'{first}' {problem} ({count})"


def _check_dtype(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: Path) -> None:
    """Check that all weights have the same floating-point dtype, and that tables of integers have theirs."""
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    first = next((dtypes[name] for name in tensors if expected[name].is_floating_point()), "")
    for name, tensor in tensors.items():
        if not expected[name].is_floating_point() and tensor.dtype == expected[name].dtype:
            continue
        if not tensor.is_floating_point() or dtypes[name] != first:
            raise InputError(
                f"the weights '{where}' must have one floating-point dtype, got {first} and for '{name}' "
                f"{dtypes[name]}; convert them"
            )


def write_tokenizer(tokenizer: "Tokenizer", folder: Path, positions: int) -> None:
    """Write tokenizer.json and tokenizer_config.json; `positions` is the maximum number of tokens, 0 if unlimited."""
    known = {f"{role}_token": token for role, token in _SPECIAL.items() if tokenizer.token_to_id(token) is not None}
    config: dict[str, str | int] = {"tokenizer_class": "PreTrainedTokenizerFast", **known}
    if positions:
        config["model_max_length"] = positions
    write_atomic(folder / "tokenizer.json", tokenizer.to_str(pretty=True))
    write_atomic(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")


def read_tokenizer(folder: Path) -> "Tokenizer | None":
    """Read the tokenizer.json of a folder; None if there is none."""
    path = folder / "tokenizer.json"
    return files.read_tokenizer(path) if path.exists() else None


def check_ids(tokenizer: "Tokenizer | None", vocab: int, where: Path) -> None:
    """Check that every id of the tokenizer has a row in the model's word table."""
    highest = max(tokenizer.get_vocab().values(), default=0) if tokenizer is not None else 0
    if highest >= vocab:
        raise InputError(
            f"the tokenizer of '{where}' has the id {highest}, but the model has {vocab} entries; "
            "use the tokenizer that the model was trained with"
        )


def with_changes(model: Model, change: dict[str, Any]) -> Model:
    """Rebuild the model with a changed config; raise an InputError if the weights don't match it.

    A model with a smaller depth has the first blocks of the model.
    """
    config = from_mapping(type(model.config), {**to_mapping(model.config), **change})
    changed = build(config, heads=model.head_settings)
    removed = tuple(f"blocks.{index}." for index in range(config.depth, len(model.blocks)))
    kept = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(removed)}
    if problem := difference(kept, changed.state_dict()):
        raise InputError(
            f"the weights don't match the config after change = {change}: {problem}; change only fields that no weight "
            "depends on, or choose a smaller depth"
        )
    changed.load_state_dict(kept)
    ranges = {name: values for name, values in model.ranges.items() if not name.startswith(removed)}
    settings = dict(model.head_settings)
    changed.metadata = replace(model.metadata, config=config, ranges=ranges, head_settings=settings)
    return changed
