"""The tables of keys in the documentation, generated from the recipe classes.

`python tests/recipes/key_tables.py` writes them into the pages after a change of a key.
"""

import re
from itertools import groupby
from pathlib import Path

from lightbert.commands.recipes import recipe_class
from lightbert.config import keys

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"pretrain": "pretraining.md", "distill": "distillation.md", "finetune": "finetuning.md"}


def key_tables(verb: str) -> str:
    """A table per group of keys."""
    parts = []
    for group, members in groupby(keys(recipe_class(verb)), lambda key: key.group):
        rows = [f"| `{k.name}` | {_code(k.default_text)} | {k.allowed} | {k.meaning} |" for k in members]
        parts.append("\n".join([f"**{group}**\n", "| key | default | must be | meaning |", "| --- " * 4 + "|", *rows]))
    return "\n\n".join(parts) + "\n"


def _code(default: str) -> str:
    return default if default == "none" else f"`{default}`"


if __name__ == "__main__":
    for verb, page in PAGES.items():
        text = (DOCS / page).read_text(encoding="utf-8")
        pattern = re.compile(r"(?<=\n)(?:\*\*Keys of [^\n]*\*\*\n\n(?:\|[^\n]*\n)+\n?)+")
        text = pattern.sub(lambda _, verb=verb: key_tables(verb) + "\n", text, count=1)
        (DOCS / page).write_text(text, encoding="utf-8")
