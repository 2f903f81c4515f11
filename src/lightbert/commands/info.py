"""`lightbert info`: parameters and FLOPs of a model, or of all bundled models and presets."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import options
from lightbert.commands.report import show
from lightbert.config import to_mapping

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.models import Config as ModelConfig
    from lightbert.models.size import PaperFigures, Size


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

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table(title=self.name, show_header=False, title_justify="left")
        for label, value in self._rows():
            table.add_row(label, value)
        return table

    def _rows(self) -> list[tuple[str, str]]:
        size, printed = self.size, self.printed
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
        if printed is not None:
            rows.append(("paper", f"{printed_figures(printed)} ({printed.source})"))
        rows += [(f"config.{key}", str(value)) for key, value in to_mapping(self.config).items()]
        return rows


@dataclass(frozen=True)
class PresetList:
    """The sizes of all presets."""

    presets: tuple[Description, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"presets": [description.to_json() for description in self.presets]}

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table(
            caption="FLOPs: matrix products and convolutions for a text of 128 tokens", caption_justify="left"
        )
        table.add_column("preset", no_wrap=True)
        for column in ("parameters", "with RTD head", "with MLM head", "GFLOPs"):
            table.add_column(column, justify="right")
        table.add_column("paper")
        for each in self.presets:
            size = each.size
            counts = (size.parameters, size.rtd_parameters, size.mlm_parameters)
            paper = "" if each.printed is None else f"{printed_figures(each.printed)} ({each.printed.source})"
            table.add_row(each.name, *(f"{count:,}" for count in counts), f"{size.forward / 1e9:.3f}", paper)
        return table


@dataclass(frozen=True)
class ModelList:
    """The bundled models with their bytes on disk, and all presets."""

    bundled: tuple[tuple[Description, int], ...]
    presets: PresetList

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        bundled = [{**description.to_json(), "bytes": on_disk} for description, on_disk in self.bundled]
        return {"bundled": bundled, **self.presets.to_json()}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        return Group(self._bundled(), self.presets)

    def _bundled(self) -> "RenderableType":
        from rich.table import Table

        if not self.bundled:
            return "the weights of the bundled models are not in this installation; a released wheel contains them"
        table = Table()
        table.add_column("bundled model, with weights", no_wrap=True)
        for column in ("parameters", "GFLOPs", "MB on disk"):
            table.add_column(column, justify="right")
        table.add_column("heads")
        for each, on_disk in self.bundled:
            figures = (f"{each.size.parameters:,}", f"{each.size.forward / 1e9:.3f}", f"{on_disk / 1e6:.1f}")
            table.add_row(each.name, *figures, ", ".join(each.size.heads))
        return table


def run(config: Config) -> Description | ModelList:
    """Describe one model, or all bundled models and presets."""
    from lightbert import bundled
    from lightbert.models import PRESETS

    if config.name is not None:
        return _named(config.name)
    shipped = tuple((_named(name), _bytes_in(folder)) for name, folder in bundled.installed().items())
    return ModelList(shipped, PresetList(tuple(describe(name) for name in PRESETS)))


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


def printed_figures(printed: "PaperFigures") -> str:
    """The figures that a paper reports, in one line."""
    figures = [f"{printed.millions:g}M"]
    if printed.flops is not None:
        figures.append(f"{printed.flops / 1e9:g} GFLOPs")
    if printed.training_flops is not None:
        figures.append(f"{printed.training_flops:.1e} FLOPs to train".replace("e+", "e"))
    return ", ".join(figures)


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
