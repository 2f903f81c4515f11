"""`lightbert convert`: convert a model from or to the Hugging Face layout, or from a TensorFlow 1 checkpoint."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lightbert.commands.report import AsJson, Report, show
from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from lightbert.models import Model
    from lightbert.nn.pooling_settings import Pool

_LAYOUTS = ("hf", "lightbert", "sentence-transformers")
_PADDING_NOTE = (
    "transformers' convolutions read padding, which lightbert masks: in transformers, the states of a text "
    "depend on its padding"
)
_NATIVE_NOTE = "transformers computes other states: import lightbert before sentence-transformers loads the folder"


@dataclass(frozen=True)
class Config:
    """Source, target, layout, and the heads to keep (None: all).

    pool, projection, normalize: change how vectors are computed; None = as saved.
    `part` and `json` are for TensorFlow 1 checkpoints: discriminator or generator, and the JSON config.
    """

    source: str
    target: Path
    to: str
    heads: tuple[str, ...] | None = None
    force: bool = False
    part: str | None = None
    json: Path | None = None
    pool: "Pool | None" = None
    projection: bool | None = None
    normalize: bool | None = None


def run(config: Config) -> Report:
    """Read the source, drop the other heads, and write the target atomically."""
    from lightbert.interop import huggingface
    from lightbert.models import folder
    from lightbert.models.sentence_files import sentence_card
    from lightbert.nn.pooling_settings import PROJECTION

    if config.to not in _LAYOUTS:
        raise unknown("layout", config.to, _LAYOUTS)
    if not config.force and config.target.is_dir() and any(config.target.iterdir()):
        raise InputError(f"'{config.target}' is not empty; choose another folder, or add --force to replace it")
    _check_outside(config)
    model = _read(config)
    _set_pooling(config, model)
    if config.heads is not None:
        _keep(model, config.heads)
    masks_padding = getattr(model.config, "padding", "") == "masked"
    note = _PADDING_NOTE if config.to == "hf" and masks_padding else ""
    layout, card = config.to, ""
    if config.to == "sentence-transformers":
        # Not its pre-training heads, which transformers may not support.
        _keep(model, (PROJECTION,) if model.pooling is not None and model.pooling.projection else ())
        layout = "hf" if not masks_padding and huggingface.conversion(model)[0] else "lightbert"
        note, card = "" if layout == "hf" else _NATIVE_NOTE, sentence_card(native=layout == "lightbert")
    write = huggingface.write if layout == "hf" else folder.save
    write(model, config.target, card=card, force=config.force)
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


def command(
    source: Annotated[
        str,
        typer.Argument(help="A model: a folder, convbert-small-en, org/name on the Hub, or a TensorFlow 1 checkpoint."),
    ],
    target: Annotated[Path, typer.Argument(help="The folder to write.")],
    to: Annotated[str, typer.Option(help="The layout to write: hf, lightbert or sentence-transformers.")],
    heads: Annotated[str | None, typer.Option(help="Heads to keep, such as mlm or mlm,nsp; none drops all.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing target.")] = False,
    part: Annotated[str | None, typer.Option(help="TensorFlow 1 only: discriminator (default) or generator.")] = None,
    config: Annotated[Path | None, typer.Option(help="TensorFlow 1 only: the JSON config.")] = None,
    pool: Annotated[str | None, typer.Option(help="Vectors: mean, cls or max; default: as saved, or mean.")] = None,
    projection: Annotated[
        bool | None,
        typer.Option("--projection/--no-projection", help="Vectors: made by the head vector; default: as saved."),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="Vectors: scaled to length 1; default: as saved."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Convert a model from or to the Hugging Face layout, or to that of sentence-transformers.

    Models that the other library can't represent exactly raise an error. Pickled weights (.bin, .pt) are read with
    torch's restricted loader, which accepts tensors only.
    """
    kept = None if heads is None else () if heads == "none" else tuple(heads.split(","))
    vectors = (cast("Pool | None", pool), projection, normalize)
    show(run(Config(source, target, to, kept, force, part, config, *vectors)), json=json)


def _read(config: Config) -> "Model":
    from lightbert.interop.load import Tf1Checkpoint, find, load
    from lightbert.interop.tf1 import read_tf1

    if config.part is None and config.json is None:
        return load(config.source, pickled=True)
    found = find(config.source)
    if not isinstance(found, Tf1Checkpoint):
        raise InputError(f"'{config.source}.index' not found; --part and --config require a TensorFlow 1 checkpoint")
    return read_tf1(found.prefix, part=config.part or "discriminator", config=config.json)


def _set_pooling(config: Config, model: "Model") -> None:
    """Declare how the model computes vectors, if an option or the layout says so."""
    from lightbert.nn.pooling_settings import POOLS, Pooling

    if config.pool is not None and config.pool not in POOLS:
        raise unknown("pool", config.pool, POOLS)
    names = ("pool", "projection", "normalize")
    given = {name: value for name in names if (value := getattr(config, name)) is not None}
    if not given and config.to != "sentence-transformers":
        return
    pooling = model.pooling or Pooling()
    if config.to == "sentence-transformers" and not pooling.length:
        given["length"] = model.task.get("length") or min(model.positions or 512, 512)
    model.pooling = replace(pooling, **given)


def _keep(model: "Model", heads: tuple[str, ...]) -> None:
    for kind in heads:
        if kind not in model.heads:
            raise unknown("head", kind, model.heads)
    for kind in set(model.heads) - set(heads):
        del model.heads[kind]
        del model.head_settings[kind]
