"""`lightbert export`: a model as a file for another runtime."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbert.commands.options import options
from lightbert.commands.report import show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.deploy.export import Export


@dataclass(frozen=True)
class Config:
    """A model, a target and a folder."""

    model: Annotated[str, typer.Argument(help="A model: a folder, or org/name on the Hugging Face Hub.")]
    out: Annotated[Path, typer.Option(help="The folder to write.")]
    to: Annotated[Literal["onnx"], typer.Option(help="The target: onnx.")] = "onnx"
    head: Annotated[
        str,
        typer.Option(
            help="The head to export, or states for the hidden states; default: the head of the model's task."
        ),
    ] = ""
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder.")] = False


@dataclass(frozen=True)
class ExportReport:
    """The written folder and the comparison with the model."""

    export: "Export"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return self.export.to_json()

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        export = self.export
        table = Table("compared with the model", "rows", "tokens", "largest error", "cosine", "same predictions")
        for each in export.comparisons:
            table.add_row(
                each.inputs,
                str(each.rows),
                str(each.tokens),
                f"{each.error:.1e}",
                f"{each.cosine:.6f}",
                f"{each.same:.1%}",
            )
        size = f"{export.bytes / 1e6:.1f} MB, {export.precision}, written in {export.seconds:.1f} s"
        return Group(table, f"{export.folder / export.file}: head {export.head}, {size}")


def run(config: Config) -> ExportReport:
    """Load the model, and write, verify and publish the folder."""
    from lightbert.deploy.export import export_onnx
    from lightbert.interop.load import load

    if not config.force and config.out.is_dir() and any(config.out.iterdir()):
        raise InputError(f"'{config.out}' is not empty; choose another folder, or add --force to replace it")
    return ExportReport(export_onnx(load(config.model), config.out, head=config.head))


@options(Config)
def command(config: Config, json: bool) -> None:
    """Export a model for another runtime: model.onnx with its config and tokenizer, in a folder.

    The file is compared with the model on sentences, a padded batch, pairs, one token and the maximum length; the
    folder appears only if all outputs agree. Predict with `lightbert predict FOLDER`, which doesn't need torch.
    """
    show(run(config), json=json)
