"""Reading what the documentation says about recipes."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    """The text of a page."""
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands below a heading of a page."""
    [found] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found


def listed_keys(text: str) -> list[tuple[str, str]]:
    """Key and default of each line of a table of keys."""
    return re.findall(r"^\| `([\w.]+)` \| (none|`.*?`) \|", text, re.MULTILINE)


def flattened(mapping: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and their values, as such a table writes them."""
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "none" if value is None else f"`{json.dumps(value)}`".replace("10000.0", "10000")
