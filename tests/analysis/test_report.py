"""The HTML page of an analysis: well-formed, self-contained, and every picture with a caption."""

import re

import pytest

from extras import needs_plots
from html_elements import Elements
from lightbert.analysis.figure import new_figure
from lightbert.analysis.report import (
    Picture,
    Results,
    Section,
    Table,
    check_target,
    file_name,
    html_page,
    write_results,
)
from lightbert.errors import InputError

pytestmark = needs_plots


def draw():
    figure = new_figure(3, 2)
    panel = figure.subplots()
    panel.imshow([[0.0, 1.0], [0.5, 0.2]])
    panel.plot([0, 1], [1, 0], "o")
    panel.set_title("a <b> & $5")
    return figure


def results(**changes):
    section = Section(
        "maps",
        "Maps <1>",
        "What it is & how.",
        (Picture("one", "The <first>.", draw), Picture("two", "The second.", draw)),
        (Table("numbers", ("layer", "x"), [("1", 0.123456), ("2", None)]),),
        {"x": 0.5, "y": float("nan")},
        {"values": [1.0, float("inf")]},
        ("A note.",),
    )
    fields = {"title": "a <model>", "facts": {"text": "<script>x</script>"}, "sections": [section], "left_out": {}}
    return Results(**(fields | changes))


@pytest.fixture(scope="module")
def page():
    return html_page(results(left_out={"kernels": "the model has none"}), lambda picture: picture.draw())


def test_the_page_is_well_formed_and_refers_to_nothing_outside(page):
    elements = Elements(page)
    assert not re.search(r"https?:|//cdn|@import|src=", page)
    ids = [attributes["id"] for _, attributes in elements.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in elements.elements:
        for name in ("href", "xlink:href"):
            target = attributes.get(name, "data:,")
            assert target.startswith("data:") or target[1:] in ids
    assert all(name in ids for name in re.findall(r"url\(#(.*?)\)", page))


def test_every_picture_has_a_caption_and_a_description_for_screen_readers(page):
    elements = Elements(page)
    assert len(elements.with_name("figure")) == len(elements.with_name("figcaption")) == 2
    assert [svg["aria-label"] for svg in elements.with_name("svg")] == ["The <first>.", "The second."]
    assert all(svg["role"] == "img" for svg in elements.with_name("svg"))
    assert elements.with_name("html")[0]["lang"] == "en"
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in elements.with_name("meta")


def test_texts_are_escaped_analyses_left_out_are_listed_and_cells_have_four_digits(page):
    assert "<script>" not in page
    assert "a &lt;model&gt;" in page
    assert "<b>kernels</b>: the model has none." in page
    assert "<td>0.1235</td>" in page
    assert "<td></td>" in page
    assert "left-out" not in html_page(results(sections=[]), lambda picture: picture.draw())


def test_the_suffix_selects_what_is_written(tmp_path):
    for name, files in (
        ("report.html", ["report.html"]),
        ("numbers.json", ["numbers.json"]),
        ("maps.png", ["maps-one.png", "maps-two.png"]),
        ("folder", ["report.html", "report.json", "one.png", "two.png"]),
    ):
        written = write_results(results(), tmp_path / "new" / name)
        assert [path.name for path in written] == files
        assert all(path.stat().st_size > 50 for path in written)


def test_json_has_no_numbers_that_are_not_finite():
    assert results().to_json() == {
        "metrics": {"x": 0.5, "y": None},
        "analyses": {"maps": {"values": [1.0, None]}},
        "left_out": {},
    }


def test_an_unknown_suffix_raises_an_error_before_anything_is_computed(tmp_path):
    with pytest.raises(InputError, match="unknown picture format 'doc'"):
        check_target(tmp_path / "x.doc")


def test_file_names_have_no_separators():
    assert file_name("word and/or a..b") == "word-and-or-a-b"
