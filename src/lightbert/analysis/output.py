"""Writing sections to disk: one HTML page, pictures, JSON, or a folder of all three."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightbert.analysis.html_report import html_report
from lightbert.analysis.picture import check_format, write
from lightbert.analysis.section import Picture, Section
from lightbert.errors import InputError
from lightbert.files import check_outputs, list_outputs, make_folder, write_atomic
from lightbert.progress import Bar, progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGES = (".html", ".htm")
_PAGE, _JSON = "report.html", "report.json"


@dataclass(frozen=True)
class Results:
    """The sections of a report, with facts about the models and the analyses that were left out."""

    title: str
    facts: Mapping[str, str]
    sections: Sequence[Section]
    left_out: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The metrics of all sections, and the details of each; numbers that are not finite become None."""
        metrics = {name: value for each in self.sections for name, value in each.metrics.items()}
        plain: dict[str, Any] = _finite(
            {
                "metrics": metrics,
                "analyses": {each.name: each.details for each in self.sections},
                "left_out": dict(self.left_out),
            }
        )
        return plain


def check_target(out: Path, *, overwrite: bool = False) -> None:
    """Check, before the work, that an output can be drawn and replaces only what lightbert wrote, unless `overwrite`.

    No suffix means a folder.
    """
    suffix = "" if out.is_dir() else out.suffix.lower()
    if suffix != ".json":
        # A page and a folder contain pictures, too.
        check_format(".svg" if suffix in ("", *_PAGES) else suffix)
    if not suffix:
        check_outputs(out, (_PAGE, _JSON), overwrite=overwrite)
    elif not overwrite:
        _check_replaced(out, b'"analyses"' if suffix == ".json" else b"lightbert")


def _check_replaced(out: Path, mark: bytes) -> None:
    """Check that a file that exists is a report or a picture of lightbert: its content has a mark."""
    if out.is_file() and mark not in out.read_bytes():
        raise InputError(
            f"'{out}' exists and is not a report of `lightbert analyse`; choose another --out, or add --overwrite"
        )


def make_target(out: Path) -> None:
    """Create the folder of an output, so that a path that can't be written raises an error before the work."""
    make_folder(out.parent if out.suffix and not out.is_dir() else out)


def write_results(results: Results, out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a page, JSON or pictures by the suffix of `out`, or all three into a folder; return the files."""
    make_target(out)
    suffix = "" if out.is_dir() else out.suffix.lower()
    if suffix == ".json":
        return [_write_json(results, out)]
    pictures = [picture for each in results.sections for picture in each.pictures]
    with progress("drawing", len(pictures), "pictures") as bar:
        if suffix in _PAGES:
            return [_write_page(results, out, bar)]
        if suffix:
            # One picture has the name of the file, several have their own names appended.
            names = [out] if len(pictures) == 1 else [out.with_stem(f"{out.stem}-{each.name}") for each in pictures]
            for path in () if overwrite else names:
                _check_replaced(path, b"lightbert")
            return [_write_picture(picture, path, bar)[0] for picture, path in zip(pictures, names, strict=True)]
        files = [_PAGE, _JSON, *(f"{picture.name}.png" for picture in pictures)]
        check_outputs(out, files, overwrite=overwrite)
        _write_page(results, out / _PAGE, bar, out)
        _write_json(results, out / _JSON)
        list_outputs(out, files)
        return [out / name for name in files]


def _write_json(results: Results, path: Path) -> Path:
    write_atomic(path, json.dumps(results.to_json(), ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _write_page(results: Results, path: Path, bar: Bar, folder: Path | None = None) -> Path:
    """Write the page, and its pictures into a folder if one is given."""

    def draw(picture: Picture) -> "Figure":
        if folder is not None:
            return _write_picture(picture, folder / f"{picture.name}.png", bar)[1]
        figure = picture.draw()
        bar.advance()
        return figure

    page = html_report(results.title, results.facts, results.sections, results.left_out, draw)
    write_atomic(path, page)
    return path


def _write_picture(picture: Picture, path: Path, bar: Bar) -> "tuple[Path, Figure]":
    figure = picture.draw()
    write(figure, path)
    bar.advance()
    return path, figure


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
