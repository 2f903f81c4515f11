"""Creating and saving matplotlib figures, without a display."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lightbert.errors import required, unknown
from lightbert.files import make_folder, write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 150


def new_figure(width: float, height: float) -> "Figure":
    """Create an empty figure of a size in inches, whose layout leaves room for labels and legends."""
    with required("plots require matplotlib", "lightbert[plots]"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def check_format(suffix: str) -> None:
    """Check that a suffix such as ".png" is a picture format."""
    formats = new_figure(1, 1).canvas.get_supported_filetypes()
    ending = suffix.removeprefix(".").lower()
    if ending not in formats:
        raise unknown("picture format", ending, formats)


def write(figure: "Figure", picture: Path) -> None:
    """Save a figure in the format of the file's extension; creates the folder if needed."""
    check_format(picture.suffix)
    make_folder(picture.parent)
    write_atomic(picture, _render(figure, picture.suffix.removeprefix(".").lower()))


def inline_svg(figure: "Figure", prefix: str) -> str:
    """A figure as an SVG element for an HTML page: transparent, without references, with ids that start with a prefix.

    Several figures of a page need different prefixes, because ids are unique in a page.
    """
    content = _render(figure, "svg", transparent=True).decode("utf-8")
    content = content[content.index("<svg") :]
    # HTML needs no namespaces, which look like references to other hosts.
    content = re.sub(r' xmlns(:\w+)?="[^"]*"', "", content)
    content = re.sub(r"<metadata>.*?</metadata>", "", content, flags=re.DOTALL)
    content = re.sub(r'\bid="', f'id="{prefix}', content)
    return re.sub(r'(href="|url\()#', rf"\1#{prefix}", content)


def _render(figure: "Figure", ending: str, *, transparent: bool = False) -> bytes:
    from matplotlib import rc_context

    content = io.BytesIO()
    # SVG files keep text as text, which makes them small and searchable; the salt makes them reproducible.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "lightbert"}):
        # By which `lightbert analyse` recognises its pictures.
        metadata = {"png": {"Software": "lightbert"}, "svg": {"Creator": "lightbert", "Date": None}}.get(
            ending, {"Creator": "lightbert"} if ending in ("pdf", "ps", "eps") else {}
        )
        figure.savefig(content, format=ending, dpi=_DPI, transparent=transparent, metadata=metadata)
    # The layout is the same in every format, and expensive.
    figure.set_layout_engine("none")
    return content.getvalue()
