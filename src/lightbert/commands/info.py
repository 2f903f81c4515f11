"""`lightbert info`: parameters and FLOPs of a model, or of all bundled models and presets."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import options
from lightbert.commands.report import Report, Table, show
from lightbert.config import to_mapping

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
    """The name of a model; None means all bundled models and presets."""

    name: Annotated[
        str | None, typer.Argument(help="A preset or a model; all presets and bundled models if omitted.")
    ] = None


@dataclass(frozen=True)
class Description:
    """The size of a model, and the figures of its paper."""

    name: str
    preset: str | None
    config: "ModelConfig"
    size: "Size"
    printed: "PaperFigures | None"
    training: float | None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        size = self.size
        return {
            "preset": self.preset,
            "name": self.name,
            "family": type(self.config).__name__.lower(),
            "parameters": size.parameters,
            "rtd_parameters": size.rtd_parameters,
            "mlm_parameters": size.mlm_parameters,
            "head_parameters": size.heads,
            "flops_per_token": size.flops_per_token,
            "flops": {"forward_128": size.forward, "mixer_512": size.mixer_at_512, "training_electra": self.training},
            "paper": None if self.printed is None else _plain(self.printed),
            "config": to_mapping(self.config),
        }

    def __rich__(self) -> Table:
        size = self.size
        rows = [
            ("parameters", f"{size.parameters:,}"),
            ("  with RTD head", f"{size.rtd_parameters:,}"),
            ("  with MLM head", f"{size.mlm_parameters:,}"),
            *((f"  {kind} head", f"{count:,}") for kind, count in size.heads.items()),
            ("FLOPs per token", f"{size.flops_per_token:,}"),
            ("FLOPs, 128 tokens", f"{size.forward:.3e}"),
            ("FLOPs, one mixer, 512 tokens", f"{size.mixer_at_512:.3e}"),
        ]
        if self.training is not None:
            rows.append(("FLOPs of pre-training (ELECTRA's rules)", f"{self.training:.3e}"))
        if self.printed is not None:
            rows.append(("paper", self.paper))
        rows += [(f"config.{key}", str(value)) for key, value in to_mapping(self.config).items()]
        return Table(("", ""), rows, title=self.name, left=2)

    @property
    def paper(self) -> str:
        """The figures that the paper reports, in one line."""
        if self.printed is None:
            return ""
        figures = [f"{self.printed.millions:g}M"]
        if self.printed.flops is not None:
            figures.append(f"{self.printed.flops / 1e9:g} GFLOPs")
        if self.printed.training_flops is not None:
            figures.append(f"{self.printed.training_flops:.1e} FLOPs to train".replace("e+", "e"))
        return f"{', '.join(figures)} ({self.printed.source})"


def run(config: Config) -> Description | Report:
    """Describe one model, or all bundled models and presets."""
    from lightbert import bundled
    from lightbert.models import PRESETS

    if config.name is not None:
        return _named(config.name)
    models = [(_named(name), _bytes_in(folder)) for name, folder in bundled.installed().items()]
    presets = [describe(name) for name in PRESETS]
    content = {
        "bundled": [{**model.to_json(), "bytes": size} for model, size in models],
        "presets": [preset.to_json() for preset in presets],
    }
    rows = [
        (
            model.name,
            ", ".join(model.size.heads),
            f"{model.size.parameters:,}",
            f"{model.size.forward / 1e9:.3f}",
            f"{size / 1e6:.1f}",
        )
        for model, size in models
    ]
    columns = ("bundled model, with weights", "heads", "parameters", "GFLOPs", "MB on disk")
    missing = "the weights of the bundled models are not in this installation; a released wheel contains them"
    return Report(content, [Table(columns, rows, left=2) if rows else missing, preset_table(presets)])


def preset_table(presets: Sequence[Description]) -> Table:
    """The sizes of presets, next to the figures of their papers."""
    rows = [
        (
            preset.name,
            *(f"{n:,}" for n in (preset.size.parameters, preset.size.rtd_parameters, preset.size.mlm_parameters)),
            f"{preset.size.forward / 1e9:.3f}",
            preset.paper,
        )
        for preset in presets
    ]
    columns = ("preset", "parameters", "with RTD head", "with MLM head", "GFLOPs", "paper")
    return Table(columns, rows, caption="FLOPs: matrix products and convolutions for a text of 128 tokens")


def _bytes_in(folder: Path) -> int:
    """The size of a folder's own files, without those of the folders in it."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def describe(name: str) -> Description:
    """Describe a preset."""
    from lightbert.models import preset
    from lightbert.models.size import PAPER_FIGURES, measure, training

    config, printed = preset(name), PAPER_FIGURES.get(name)
    plan = None if printed is None else printed.pretraining
    return Description(
        name=name,
        preset=name,
        config=config,
        size=measure(config),
        printed=printed,
        training=None if plan is None else training(config, plan),
    )


def _named(name: str) -> Description:
    from lightbert.interop import load
    from lightbert.interop.load import Preset, find
    from lightbert.models.size import measure

    found = find(name)
    if isinstance(found, Preset):
        return describe(found.name)
    model = load.describe(found)
    size = measure(model.config, model.head_settings)
    return Description(name=name, preset=None, config=model.config, size=size, printed=None, training=None)


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


def tour_report(presets: Sequence[Description], differences: Sequence[Padding]) -> Report:
    """The report of the sizes of presets, and the padding test of families."""
    largest = max(max(row.padded, row.packed) for row in differences)
    content = {
        "metrics": {"presets": len(presets), "largest_padding_difference": largest},
        "presets": [preset.to_json() for preset in presets],
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
        if hasattr(model.config, "padding"):
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
