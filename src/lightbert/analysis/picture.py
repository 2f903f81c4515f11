"""Figures, made without a screen and written where they are wanted."""

from pathlib import Path
from typing import TYPE_CHECKING

from lightbert.errors import InputError, unknown
from lightbert.files import make_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches, which makes room for whatever is written beside its axes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("pictures need matplotlib: pip install 'lightbert[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def write(figure: "Figure", picture: Path) -> None:
    """Write a figure in the format that the name of the file ends with; a folder that is missing is made."""
    formats = figure.canvas.get_supported_filetypes()
    ending = picture.suffix.removeprefix(".").lower()
    if ending not in formats:
        raise unknown("picture format", ending, formats)
    make_folder(picture.parent)
    figure.savefig(picture, dpi=120)
