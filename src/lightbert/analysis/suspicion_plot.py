"""Corrupted sentences as a figure: each word on a background that shows its suspicion."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightbert.analysis.picture import new_figure
from lightbert.analysis.suspicion import CorruptedSentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FONT_SIZE = 11
# The advance of DejaVu Sans Mono, which matplotlib ships, in inches.
_CHARACTER = 0.602 * _FONT_SIZE / 72
_LINE = 0.27
_MARGIN = 2  # characters


def plot_suspicion(sentences: Sequence[CorruptedSentence], title: str) -> "Figure":
    """Draw the words of each sentence above their suspicion in percent; a frame marks the replaced word."""
    columns = max(_columns(sentence) for sentence in sentences) + 2 * _MARGIN
    lines = 2 * len(sentences) + 2
    figure = new_figure(columns * _CHARACTER, lines * _LINE)
    # The axes fill the figure; data coordinates are columns and lines of text.
    figure.set_layout_engine("none")
    panel = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    panel.set_axis_off()
    panel.set(xlim=(0, columns), ylim=(lines, 0))
    _write(panel, _MARGIN, 0.9, title, fontsize=_FONT_SIZE - 2)
    for number, sentence in enumerate(sentences):
        _draw_sentence(panel, sentence, line=2 * number + 2)
    return figure


def _draw_sentence(panel: Any, sentence: CorruptedSentence, line: int) -> None:
    from matplotlib.patches import Rectangle

    column = _MARGIN
    for place, word in enumerate(sentence.words):
        width = _width(word.text)
        panel.add_patch(
            Rectangle(
                (column - 0.4, line - 0.45),
                len(word.text) + 0.8,
                0.9,
                facecolor=(0.85, 0.15, 0.1, word.suspicion),
                edgecolor="black" if place == sentence.place else "none",
            )
        )
        _write(panel, column, line, word.text)
        _write(panel, column, line + 0.8, f"{100 * word.suspicion:.0f}", fontsize=_FONT_SIZE - 4, color="grey")
        column += width
    _write(panel, column, line, _note(sentence), fontsize=_FONT_SIZE - 2, color="grey")


def _write(panel: Any, column: float, line: float, text: str, **style: Any) -> None:
    # Dollar signs in a text don't start a formula.
    fixed = {"family": "monospace", "va": "center", "parse_math": False}
    panel.text(column, line, text, **{"fontsize": _FONT_SIZE, **fixed, **style})


def _columns(sentence: CorruptedSentence) -> int:
    return sum(_width(word.text) for word in sentence.words) + len(_note(sentence))


def _width(word: str) -> int:
    """Columns from the start of a word to the start of the next; a percentage of three digits fits below."""
    return max(len(word), 2) + 1


def _note(sentence: CorruptedSentence) -> str:
    return f"  was: {sentence.original}"
