"""Creating and saving matplotlib figures, without a display."""

from pathlib import Path
from typing import TYPE_CHECKING

from lightbert.errors import InputError, unknown
from lightbert.files import make_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> "Figure":
    """Create an empty figure of a size in inches, whose layout leaves room for labels and legends."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("plots require matplotlib; run pip install 'lightbert[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def write(figure: "Figure", picture: Path) -> None:
    """Save a figure in the format of the file's extension; creates the folder if needed."""
    from matplotlib import rc_context

    formats = figure.canvas.get_supported_filetypes()
    ending = picture.suffix.removeprefix(".").lower()
    if ending not in formats:
        raise unknown("picture format", ending, formats)
    make_folder(picture.parent)
    # SVG files keep text as text, which makes them small and searchable.
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(picture, dpi=120)
