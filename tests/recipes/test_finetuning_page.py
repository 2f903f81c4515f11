"""docs/finetuning.md says what the code says."""

import json
import re
from fnmatch import fnmatch

from recipe_files import FOLDER

from lightbert.config import read_toml, to_mapping
from lightbert.tasks.recipe import FinetuneRecipe

PAGE = (FOLDER.parent / "docs" / "finetuning.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    [text] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return text


def flattened(mapping, prefix=""):
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", f"`{json.dumps(value)}`"


def test_every_key_is_listed_once_with_its_default():
    needed = {"model": "m", "out": "o", "task": "rte"}
    defaults = {**to_mapping(FinetuneRecipe(**needed)), "model": "", "out": "", "task": ""}
    listed = re.findall(r"^\| `([\w.]+)` \| (`.*?`) \|", section("Keys"), re.MULTILINE)
    assert sorted(listed) == sorted(flattened(defaults))


def test_every_recipe_matches_a_line_of_the_table_of_files():
    patterns = re.findall(r"`([\w*-]+)`", section("Recipes"))
    files = [path.stem for path in FOLDER.glob("[!_]*.toml") if {"task", "tasks", "layer_decay"} & {*read_toml(path)}]
    assert files
    assert not [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)]
