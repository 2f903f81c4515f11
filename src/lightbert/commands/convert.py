"""`lightbert convert`: convert a model from or to the Hugging Face layout, or from a TensorFlow 1 checkpoint."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbert.commands.options import CommaSeparated, options
from lightbert.commands.report import Report, show
from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from lightbert.models import Model

_PADDING_NOTE = (
    "transformers' convolutions read padding, which lightbert masks: in transformers, the states of a text "
    "depend on its padding"
)
_NATIVE_NOTE = "transformers computes other states: import lightbert before sentence-transformers loads the folder"


@dataclass(frozen=True)
class Config:
    """A model, the folder and the layout to write, the heads to keep, and changes of how vectors are computed."""

    source: Annotated[
        str,
        typer.Argument(help="A model: a folder, convbert-small-en, org/name on the Hub, or a TensorFlow 1 checkpoint."),
    ]
    target: Annotated[Path, typer.Argument(help="The folder to write.")]
    to: Annotated[Literal["hf", "lightbert", "sentence-transformers"], typer.Option(help="The layout to write.")]
    heads: Annotated[
        tuple[str, ...],
        CommaSeparated(),
        typer.Option(help="Heads to keep, such as mlm or mlm,nsp; none drops all; default: all."),
    ] = ()
    force: Annotated[bool, typer.Option("--force", help="Replace an existing target.")] = False
    part: Annotated[str | None, typer.Option(help="TensorFlow 1 only: discriminator (default) or generator.")] = None
    config: Annotated[Path | None, typer.Option(help="TensorFlow 1 only: the JSON config.")] = None
    pool: Annotated[
        Literal["mean", "cls", "max"] | None,
        typer.Option(help="Vectors: mean, cls or max; default: as saved, or mean."),
    ] = None
    projection: Annotated[
        bool | None,
        typer.Option("--projection/--no-projection", help="Vectors: made by the head vector; default: as saved."),
    ] = None
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="Vectors: scaled to length 1; default: as saved."),
    ] = None


def run(config: Config) -> Report:
    """Read the source, drop the other heads, and write the target atomically."""
    from lightbert.interop import huggingface
    from lightbert.models import folder
    from lightbert.nn.pooling_settings import PROJECTION

    if not config.force and config.target.is_dir() and any(config.target.iterdir()):
        raise InputError(f"'{config.target}' is not empty; choose another folder, or add --force to replace it")
    _check_outside(config)
    model = _read(config)
    _set_pooling(config, model)
    if config.heads:
        _keep(model, () if config.heads == ("none",) else config.heads)
    masks_padding = model.config.reads_neighbours and model.config.padding == "masked"
    note = _PADDING_NOTE if config.to == "hf" and masks_padding else ""
    layout = config.to
    if config.to == "sentence-transformers":
        # Not its pre-training heads, which transformers may not support.
        _keep(model, (PROJECTION,) if model.pooling is not None and model.pooling.projection else ())
        layout = "hf" if not masks_padding and huggingface.conversion(model)[0] else "lightbert"
        note = "" if layout == "hf" else _NATIVE_NOTE
    write = huggingface.write if layout == "hf" else folder.save
    write(model, config.target, force=config.force)
    heads, parameters = list(model.heads), sum(parameter.numel() for parameter in model.parameters())
    content = {
        "source": config.source,
        "target": str(config.target),
        "layout": config.to,
        "family": folder.description(model)["family"],
        "heads": heads,
        "parameters": parameters,
        "notes": [note] if note else [],
    }
    with_heads = f" with {', '.join(heads)}" if heads else ""
    line = f"{config.target}: {content['family']}{with_heads}, {parameters:,} parameters, {config.to} layout"
    return Report(content, [line, *([f"note: {note}"] if note else [])])


def _check_outside(config: Config) -> None:
    """Check that the source is not in the folder that is replaced."""
    source = Path(config.source)
    # A TensorFlow 1 checkpoint is named by the prefix of its files.
    exists = source.exists() or source.with_name(f"{source.name}.index").exists()
    if exists and source.resolve().is_relative_to(config.target.resolve()):
        raise InputError(
            f"the source '{config.source}' is in the target '{config.target}', which would replace it; choose another "
            "target"
        )


@options(Config)
def command(config: Config, json: bool) -> None:
    """Convert a model from or to the Hugging Face layout, or to that of sentence-transformers.

    Models that the other library can't represent exactly raise an error. Pickled weights (.bin, .pt) are read with
    torch's restricted loader, which accepts tensors only.
    """
    show(run(config), json=json)


def _read(config: Config) -> "Model":
    from lightbert.interop.load import Tf1Checkpoint, find, load
    from lightbert.interop.tf1 import read_tf1

    if config.part is None and config.config is None:
        return load(config.source, pickled=True)
    location = find(config.source)
    if not isinstance(location, Tf1Checkpoint):
        raise InputError(f"'{config.source}.index' not found; --part and --config require a TensorFlow 1 checkpoint")
    return read_tf1(location.prefix, part=config.part or "discriminator", config=config.config)


def _set_pooling(config: Config, model: "Model") -> None:
    """Declare how the model computes vectors, if an option or the layout says so."""
    from lightbert.nn.pooling_settings import Pooling

    names = ("pool", "projection", "normalize")
    changes: dict[str, Any] = {name: value for name in names if (value := getattr(config, name)) is not None}
    if not changes and config.to != "sentence-transformers":
        return
    pooling = model.pooling or Pooling()
    if config.to == "sentence-transformers" and not pooling.length:
        changes["length"] = model.task.get("length") or min(model.positions or 512, 512)
    model.pooling = replace(pooling, **changes)


def _keep(model: "Model", heads: tuple[str, ...]) -> None:
    for kind in heads:
        if kind not in model.heads:
            raise unknown("head", kind, model.heads)
    for kind in set(model.heads) - set(heads):
        del model.heads[kind]
        del model.head_settings[kind]
