"""`lightbert info`: parameters and FLOPs of a model, or of all bundled models and presets."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import options
from lightbert.commands.report import Report, Table, show
from lightbert.config import assignments, from_mapping, to_mapping
from lightbert.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from lightbert.models import Config as ModelConfig
    from lightbert.models.size import PaperFigures, Size
    from lightbert.nn.encoder import Encoder

FAMILIES = ("bert-small", "convbert-small", "composite-small", "mobilebert")
"""The baseline and one preset of each paper."""

# Lengths that need padding, shorter and longer than kernels of 9 and 17.
_LENGTHS = (23, 7, 12)
_EXTRA = 9


@dataclass(frozen=True)
class Config:
    """The name of a model, None for all bundled models and presets, and changes of its config."""

    name: Annotated[
        str | None, typer.Argument(help="A preset or a model; all presets and bundled models if omitted.")
    ] = None
    changes: Annotated[
        tuple[str, ...], typer.Argument(help="Keys of its config to change, such as change.relative=composite.")
    ] = ()


def run(config: Config) -> Report:
    """Describe one model, or all bundled models and presets."""
    from lightbert import bundled
    from lightbert.models import PRESETS

    if config.name is not None:
        return _named(config.name, config.changes)
    models = [
        {**_named(name).content, "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.is_file())}
        for name, folder in bundled.installed().items()
    ]
    presets = [describe(name) for name in PRESETS]
    rows = [
        (
            model["name"],
            ", ".join(model["head_parameters"]),
            f"{model['parameters']:,}",
            f"{model['flops']['forward_128'] / 1e9:.3f}",
            f"{model['bytes'] / 1e6:.1f}",
        )
        for model in models
    ]
    columns = ("bundled model, with weights", "heads", "parameters", "GFLOPs", "MB on disk")
    missing = "the weights of the bundled models are not in this installation; a released wheel contains them"
    content = {"bundled": models, "presets": [preset.content for preset in presets]}
    return Report(content, [Table(columns, rows, left=2) if rows else missing, preset_table(presets)])


def preset_table(presets: Sequence[Report]) -> Table:
    """The sizes of presets, next to the figures of their papers."""
    rows = [
        (
            preset.content["name"],
            *(f"{preset.content[name]:,}" for name in ("parameters", "rtd_parameters", "mlm_parameters")),
            f"{preset.content['flops']['forward_128'] / 1e9:.3f}",
            _paper_line(preset.content["paper"]),
        )
        for preset in presets
    ]
    columns = ("preset", "parameters", "with RTD head", "with MLM head", "GFLOPs", "paper")
    return Table(columns, rows, caption="FLOPs: matrix products and convolutions for a text of 128 tokens")


def describe(name: str) -> Report:
    """Describe a preset."""
    from lightbert.models import preset
    from lightbert.models.size import PAPER_FIGURES, measure, training

    config, printed = preset(name), PAPER_FIGURES.get(name)
    plan = None if printed is None else printed.pretraining
    return _report(
        name, name, config, measure(config), printed, training=None if plan is None else training(config, plan)
    )


def _named(name: str, changes: tuple[str, ...] = ()) -> Report:
    from lightbert.interop import load
    from lightbert.interop.load import Preset, find
    from lightbert.models.size import measure

    location = find(name)
    if isinstance(location, Preset) and not changes:
        return describe(location.name)
    model, settings = load.describe(location), assignments(changes)
    if unused := settings.keys() - {"change"}:
        raise InputError(f"the changes of a model must be change.KEY=VALUE, got {min(unused)!r}")
    config = from_mapping(type(model.config), {**to_mapping(model.config), **settings.get("change", {})})
    return _report(" ".join((name, *changes)), None, config, measure(config, model.head_settings))


def _report(
    name: str,
    preset: str | None,
    config: "ModelConfig",
    size: "Size",
    printed: "PaperFigures | None" = None,
    training: float | None = None,
) -> Report:
    """The size of a model, and the figures of its paper."""
    settings, paper = to_mapping(config), None if printed is None else _plain(printed)
    content = {
        "preset": preset,
        "name": name,
        "family": type(config).__name__.lower(),
        "parameters": size.parameters,
        "rtd_parameters": size.rtd_parameters,
        "mlm_parameters": size.mlm_parameters,
        "head_parameters": size.heads,
        "flops_per_token": size.flops_per_token,
        "flops": {"forward_128": size.forward, "mixer_512": size.mixer_at_512, "training_electra": training},
        "paper": paper,
        "config": settings,
    }
    rows = [
        ("parameters", f"{size.parameters:,}"),
        ("  with RTD head", f"{size.rtd_parameters:,}"),
        ("  with MLM head", f"{size.mlm_parameters:,}"),
        *((f"  {kind} head", f"{count:,}") for kind, count in size.heads.items()),
        ("FLOPs per token", f"{size.flops_per_token:,}"),
        ("FLOPs, 128 tokens", f"{size.forward:.3e}"),
        ("FLOPs, one mixer, 512 tokens", f"{size.mixer_at_512:.3e}"),
        *([("FLOPs of pre-training (ELECTRA's rules)", f"{training:.3e}")] if training is not None else []),
        *([("paper", _paper_line(paper))] if paper else []),
        # Options that are off, which are many, are only in the JSON.
        *((f"config.{key}", str(value)) for key, value in settings.items() if value not in (None, False, "", "none")),
    ]
    return Report(content, [Table(("", ""), rows, title=name, left=2)])


def _paper_line(printed: Mapping[str, Any] | None) -> str:
    """The figures that the paper reports, in one line."""
    if printed is None:
        return ""
    figures = [f"{printed['millions']:g}M"]
    if printed["flops"] is not None:
        figures.append(f"{printed['flops'] / 1e9:g} GFLOPs")
    if printed["training_flops"] is not None:
        figures.append(f"{printed['training_flops']:.1e} FLOPs to train".replace("e+", "e"))
    return f"{', '.join(figures)} ({printed['source']})"


def _plain(printed: "PaperFigures") -> dict[str, Any]:
    values = asdict(printed)
    if printed.pretraining is not None and printed.pretraining.generator is not None:
        values["pretraining"]["generator"] = str(printed.pretraining.generator)
    return values


@options(Config)
def command(config: Config, json: bool) -> None:
    """Print the exact parameters and FLOPs of a model.

    `parameters` counts embeddings and encoder; `rtd_parameters` and `mlm_parameters` include the pre-training head,
    with tied embeddings counted once. `flops_per_token` is the number of FLOPs of a forward pass of a text of 128
    tokens, divided by 128; `training_electra` counts a whole pre-training by the rules of ELECTRA's script.
    """
    show(run(config), json=json)


@dataclass(frozen=True)
class Padding:
    """The largest absolute difference of the states of a text from those of the text alone."""

    preset: str
    padded: float
    """In a batch, padded beyond the longest text."""
    packed: float
    """Packed into one row with other texts."""
    released: float | None
    """In the padded batch, with convolutions that read padding as in the released code; None without convolutions."""


def tour() -> Report:
    """Describe every preset; run one model of each family on texts alone, padded and packed."""
    from lightbert.models import PRESETS
    from lightbert.progress import progress

    presets, differences = [], []
    with progress("counting", total=len(PRESETS), unit="presets") as bar:
        for name in PRESETS:
            presets.append(describe(name))
            bar.advance()
    with progress("running", total=len(FAMILIES), unit="models") as bar:
        for name in FAMILIES:
            differences.append(compare_padding(name))
            bar.advance()
    return tour_report(presets, differences)


def tour_report(presets: Sequence[Report], differences: Sequence[Padding]) -> Report:
    """The report of the sizes of presets, and the padding test of families."""
    largest = max(max(row.padded, row.packed) for row in differences)
    content = {
        "metrics": {"presets": len(presets), "largest_padding_difference": largest},
        "presets": [preset.content for preset in presets],
        "padding": [asdict(row) for row in differences],
    }
    rows = [
        (row.preset, f"{row.padded:.1e}", f"{row.packed:.1e}", "" if row.released is None else f"{row.released:.1e}")
        for row in differences
    ]
    columns = ("preset", "padded in a batch", "packed in a row", "padded, as released")
    title = "Largest difference of states from those of the text alone, random weights"
    return Report(content, [preset_table(presets), "", Table(columns, rows, title)])


def compare_padding(name: str) -> Padding:
    """Run a model with random weights on random texts: alone, padded and packed."""
    import torch

    from lightbert.models import build

    with torch.random.fork_rng(devices=()), torch.inference_mode():
        torch.manual_seed(0)
        model = build(name, seed=0).eval()
        texts = [torch.randint(model.table.shape[0], (length,)) for length in _LENGTHS]
        alone = [model(text[None])[0] for text in texts]
        padded = _largest_change(alone, _padded(model, texts))
        packed = _largest_change(alone, _packed(model, texts))
        released = None
        if model.config.reads_neighbours:
            model.released_padding = True
            released = _largest_change(alone, _padded(model, texts))
    return Padding(name, padded, packed, released)


def _padded(model: "Encoder", texts: "list[Tensor]") -> "list[Tensor]":
    import torch

    ids = torch.zeros(len(texts), max(_LENGTHS) + _EXTRA, dtype=torch.long)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    mask = torch.arange(ids.shape[1]) < torch.tensor(_LENGTHS)[:, None]
    return [states[:length] for states, length in zip(model(ids, mask), _LENGTHS, strict=True)]


def _packed(model: "Encoder", texts: "list[Tensor]") -> "list[Tensor]":
    import torch

    lengths = [*_LENGTHS, _EXTRA]
    ids = torch.cat([*texts, torch.zeros(_EXTRA, dtype=torch.long)])
    numbers = torch.tensor([*range(1, len(texts) + 1), 0]).repeat_interleave(torch.tensor(lengths))
    *states, _ = torch.split(model(ids[None], numbers[None])[0], lengths)
    return states


def _largest_change(alone: "list[Tensor]", batched: "list[Tensor]") -> float:
    return max(float((a - b).abs().max()) for a, b in zip(alone, batched, strict=True))
