"""What the plots share: sizes, colours, labels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightbert.analysis.picture import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = 9.6
"""The width of a page in inches."""
SMALL = 7.0
"""The size of small labels in points."""
POSITIVE, NEGATIVE, MUTED = "#0b5cad", "#c8281e", "#8a8f98"
WEIGHTS, SIGNED = "Blues", "RdBu"
"""Colour maps: for weights from 0, and for weights of both signs."""

_POINTS_PER_LABEL = 7.5


def page_figure(height: float, width: float = PAGE) -> "Figure":
    """An empty figure of a height in inches."""
    return new_figure(width, height)


def label_tokens(panel: Any, tokens: Sequence[str], *, rows: float = 0.0, columns: float = 0.0) -> None:
    """Label the rows or columns of a panel with tokens.

    ``rows`` and ``columns`` are the height and width of the panel in inches, 0 = no labels. Where not all labels fit,
    every n-th token is labelled.
    """
    # Dollar signs in a text don't start a formula.
    style = {"fontsize": SMALL, "parse_math": False}
    places = _places(len(tokens), rows)
    panel.set_yticks(places, [tokens[at] for at in places], **style)
    places = _places(len(tokens), columns)
    panel.set_xticks(places, [tokens[at] for at in places], rotation=90, **style)
    panel.tick_params(length=1.5 if len(places) else 0, pad=1)


def _places(count: int, inches: float) -> range:
    if inches <= 0:
        return range(0)
    fitting = max(1, int(inches * 72 / _POINTS_PER_LABEL))
    return range(0, count, -(-count // fitting))


def frame(panel: Any) -> None:
    """Draw a thin frame around a panel."""
    for spine in panel.spines.values():
        spine.set(linewidth=0.5, color=MUTED)
