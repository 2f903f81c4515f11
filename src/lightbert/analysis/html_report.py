"""Sections as one HTML page that contains everything it shows."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from lightbert.analysis.picture import inline_svg
from lightbert.analysis.section import Picture, Section, Table, format_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_OPEN_ROWS = 12


def html_report(
    title: str,
    facts: Mapping[str, str],
    sections: Sequence[Section],
    left_out: Mapping[str, str],
    draw: Callable[[Picture], "Figure"],
) -> str:
    """A page of a title, facts about the models, sections, and the analyses left out with their reasons.

    `draw` is called for each picture.
    """
    template = files("lightbert.analysis").joinpath("report.html").read_text(encoding="utf-8")
    parts = {
        "TITLE": escape(title),
        "FACTS": "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items()),
        "LINKS": "".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in sections),
        "SECTIONS": "\n".join(_section(each, draw) for each in sections),
        "LEFT_OUT": _left_out(left_out),
    }
    for name, content in parts.items():
        template = template.replace(f"<!--{name}-->", content)
    return template


def _section(section: Section, draw: Callable[[Picture], "Figure"]) -> str:
    figures = [
        _figure(picture, draw(picture), f"{section.name}-{number}-")
        for number, picture in enumerate(section.pictures, start=1)
    ]
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in section.notes)
    tables = "".join(map(_table, section.tables))
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.summary)}</p>'
        f"{''.join(figures)}{tables}{notes}</section>"
    )


def _figure(picture: Picture, figure: "Figure", prefix: str) -> str:
    label = escape(picture.caption, quote=True)
    svg = inline_svg(figure, prefix).replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    # The box scrolls where the screen is narrower than the picture; a box that scrolls must be reachable by keyboard.
    return (
        f'<figure><div class="scroll" tabindex="0" role="group" aria-label="picture">{svg}</div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(format_cell(row[0]))}</th>'
        + "".join(f"<td>{escape(format_cell(cell))}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    opened = " open" if len(table.rows) <= _MOST_OPEN_ROWS else ""
    return (
        f"<details{opened}><summary>{escape(table.title)}</summary>"
        f'<div class="scroll" tabindex="0" role="group" aria-label="table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _left_out(reasons: Mapping[str, str]) -> str:
    if not reasons:
        return ""
    items = "".join(f"<li><b>{escape(name)}</b>: {escape(reason)}.</li>" for name, reason in reasons.items())
    return f'<section id="left-out"><h2>Left out</h2><ul>{items}</ul></section>'
