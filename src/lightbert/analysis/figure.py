"""Matplotlib figures without a display: creating, labelling and saving them."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.errors import required, unknown
from lightbert.files import make_folder, write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = 9.6
"""The width of a page in inches."""
SMALL = 7.0
"""The size of small labels in points."""
POSITIVE, NEGATIVE, MUTED = "#0b5cad", "#c8281e", "#8a8f98"
WEIGHTS, SIGNED = "Blues", "RdBu"
"""Colour maps: for weights from 0, and for weights of both signs."""

_DPI = 150
_POINTS_PER_LABEL = 7.5


def new_figure(width: float, height: float) -> "Figure":
    """Create an empty figure of a size in inches, whose layout leaves room for labels and legends."""
    with required("plots require matplotlib", "lightbert[plots]"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def style_axes(panel: Any, x: str = "", y: str = "", title: str = "") -> None:
    """Label the axes of a panel, in small letters and without tick marks."""
    panel.set_xlabel(x, fontsize=SMALL)
    panel.set_ylabel(y, fontsize=SMALL)
    panel.set_title(title, fontsize=9)
    panel.tick_params(labelsize=SMALL, length=0)
    for spine in panel.spines.values():
        spine.set(linewidth=0.5, color=MUTED)


def add_colourbar(figure: Any, image: Any, panels: Any, label: str = "") -> None:
    """Draw the colour scale of an image to the right of panels."""
    bar = figure.colorbar(image, ax=panels, fraction=0.03, pad=0.01, aspect=30)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL - 1, length=2)
    bar.outline.set(linewidth=0.5, color=MUTED)


def label_tokens(panel: Any, tokens: Sequence[str], *, rows: float = 0.0, columns: float = 0.0) -> None:
    """Label the rows or columns of a panel with tokens.

    ``rows`` and ``columns`` are the height and width of the panel in inches, 0 = no labels. Where not all labels fit,
    every n-th token is labelled.
    """

    def places(inches: float) -> range:
        if not inches:
            return range(0)
        return range(0, len(tokens), -(-len(tokens) // max(1, int(inches * 72 / _POINTS_PER_LABEL))))

    # Dollar signs in a text don't start a formula.
    style = {"fontsize": SMALL, "parse_math": False}
    panel.set_yticks(places(rows), [tokens[place] for place in places(rows)], **style)
    panel.set_xticks(places(columns), [tokens[place] for place in places(columns)], rotation=90, **style)
    panel.tick_params(length=1.5 if rows or columns else 0, pad=1)


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
