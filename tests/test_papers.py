"""The pages of docs/papers name files, symbols and tests; all of them exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "papers").glob("*.md"))
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def rows(page: Path) -> list[list[str]]:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_links_to_code_and_a_test(page):
    assert len(rows(page)) > 5
    for _, _, symbols, place, test in rows(page):
        source = ROOT / "src" / "lightbert" / place.strip("`")
        assert source.is_file(), place
        assert f"def {test.strip('`')}(" in TESTS, test
        name = re.search(r"`(\w+)", symbols)[1]
        if name != "lightbert":
            code = source.read_text(encoding="utf-8") + (source.parent / "__init__.py").read_text(encoding="utf-8")
            assert re.search(rf"\b{name}\b", code), f"{name} is not in {place}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_path_in_the_text_exists(page):
    for path in re.findall(r"`((?:tests/)?[\w/]+\.py)`", page.read_text(encoding="utf-8")):
        assert any((base / path).is_file() for base in (ROOT, ROOT / "src" / "lightbert")), path
