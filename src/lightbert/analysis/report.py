"""The results of analyses: pictures, tables and metrics, written as an HTML page, JSON, pictures, or all three."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.analysis.figure import check_format, inline_svg, write
from lightbert.config import without_nan
from lightbert.errors import InputError
from lightbert.files import check_outputs, list_outputs, make_folder, write_atomic
from lightbert.progress import progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | float | None

_PAGES = (".html", ".htm")
_PAGE, _JSON = "report.html", "report.json"
_MAX_OPEN_ROWS = 12
"""Longer tables are collapsed on the page."""


class NotApplicableError(InputError):
    """An analysis that a model or its inputs don't allow, with the reason in one sentence."""


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn when it is written."""

    name: str
    """A part of the file name."""
    caption: str
    """One or two sentences on how to read the figure."""
    draw: Callable[[], "Figure"]


@dataclass(frozen=True)
class Table:
    """Rows of names and numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]


@dataclass(frozen=True)
class Section:
    """One analysis of a report; `details` appear in the JSON only."""

    name: str
    title: str
    summary: str
    """What is computed, in one or two sentences."""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Results:
    """The sections of a report, with facts about the models and the analyses that were left out."""

    title: str
    facts: Mapping[str, str]
    sections: Sequence[Section]
    left_out: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The metrics of all sections, and the details of each; numbers that are not finite become None."""
        plain: dict[str, Any] = without_nan(
            {
                "metrics": {name: value for section in self.sections for name, value in section.metrics.items()},
                "analyses": {section.name: section.details for section in self.sections},
                "left_out": dict(self.left_out),
            }
        )
        return plain


def file_name(text: str) -> str:
    """A text as a part of a file name: its words, joined by hyphens."""
    return "-".join(re.findall(r"\w+", text))


def format_cell(cell: Cell) -> str:
    """A cell as text; numbers have four digits."""
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else f"{cell:.4g}"


def check_target(out: Path, *, overwrite: bool = False) -> None:
    """Check, before the work, that an output can be drawn and replaces only what lightbert wrote, unless `overwrite`.

    No suffix means a folder.
    """
    suffix = _suffix(out)
    if suffix != ".json":
        # A page and a folder contain pictures, too.
        check_format(".svg" if suffix in ("", *_PAGES) else suffix)
    if not suffix:
        check_outputs(out, (_PAGE, _JSON), overwrite=overwrite)
    elif not overwrite:
        _check_replaced(out, b'"analyses"' if suffix == ".json" else b"lightbert")


def make_target(out: Path) -> None:
    """Create the folder of an output, so that a path that can't be written raises an error before the work."""
    make_folder(out.parent if _suffix(out) else out)


def _suffix(out: Path) -> str:
    return "" if out.is_dir() else out.suffix.lower()


def _check_replaced(out: Path, mark: bytes) -> None:
    """Check that a file that exists is a report or a picture of lightbert: its content has a mark."""
    if out.is_file() and mark not in out.read_bytes():
        raise InputError(
            f"'{out}' exists and is not a report of `lightbert analyse`; choose another --out, or add --overwrite"
        )


def write_results(results: Results, out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a page, JSON or pictures by the suffix of `out`, or all three into a folder; return the files."""
    make_target(out)
    suffix = _suffix(out)
    numbers = json.dumps(results.to_json(), ensure_ascii=False, allow_nan=False) + "\n"
    if suffix == ".json":
        write_atomic(out, numbers)
        return [out]
    pictures = [picture for section in results.sections for picture in section.pictures]
    with progress("drawing", len(pictures), "pictures") as bar:

        def draw(picture: Picture, path: Path | None = None) -> "Figure":
            figure = picture.draw()
            if path:
                write(figure, path)
            bar.advance()
            return figure

        if suffix in _PAGES:
            write_atomic(out, html_page(results, draw))
            return [out]
        if suffix:
            # One picture has the name of the file, several have their own names appended.
            stems = [out.stem if len(pictures) == 1 else f"{out.stem}-{picture.name}" for picture in pictures]
            names = list(map(out.with_stem, stems))
            for path in () if overwrite else names:
                _check_replaced(path, b"lightbert")
            for picture, path in zip(pictures, names, strict=True):
                draw(picture, path)
            return names
        outputs = [_PAGE, _JSON, *(f"{picture.name}.png" for picture in pictures)]
        check_outputs(out, outputs, overwrite=overwrite)
        write_atomic(out / _PAGE, html_page(results, lambda picture: draw(picture, out / f"{picture.name}.png")))
        write_atomic(out / _JSON, numbers)
        list_outputs(out, outputs)
        return [out / name for name in outputs]


def html_page(results: Results, draw: Callable[[Picture], "Figure"]) -> str:
    """The results as one HTML page that contains everything it shows; `draw` is called for each picture."""
    left_out = "".join(f"<li><b>{escape(name)}</b>: {escape(why)}.</li>" for name, why in results.left_out.items())
    parts = {
        "TITLE": escape(results.title),
        "FACTS": "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in results.facts.items()),
        "LINKS": "".join(
            f'<li><a href="#{section.name}">{escape(section.title)}</a></li>' for section in results.sections
        ),
        "SECTIONS": "\n".join(_section(section, draw) for section in results.sections),
        "LEFT_OUT": f'<section id="left-out"><h2>Left out</h2><ul>{left_out}</ul></section>' if left_out else "",
    }
    page = files("lightbert.analysis").joinpath("report.html").read_text(encoding="utf-8")
    for name, content in parts.items():
        page = page.replace(f"<!--{name}-->", content)
    return page


def _section(section: Section, draw: Callable[[Picture], "Figure"]) -> str:
    figures = []
    for number, picture in enumerate(section.pictures, start=1):
        caption = escape(picture.caption)
        svg = inline_svg(draw(picture), f"{section.name}-{number}-")
        svg = svg.replace("<svg", f'<svg role="img" aria-label="{caption}"', 1)
        # The box scrolls on narrow screens; a box that scrolls must be reachable by keyboard.
        figures.append(
            f'<figure><div class="scroll" tabindex="0" role="group" aria-label="picture">{svg}</div>'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    notes = (f'<p class="soft">{escape(note)}</p>' for note in section.notes)
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.summary)}</p>'
        f"{''.join([*figures, *map(_table, section.tables), *notes])}</section>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(format_cell(row[0]))}</th>'
        + "".join(f"<td>{escape(format_cell(cell))}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    is_open = " open" * (len(table.rows) <= _MAX_OPEN_ROWS)
    return (
        f"<details{is_open}><summary>{escape(table.title)}</summary>"
        f'<div class="scroll" tabindex="0" role="group" aria-label="table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )
