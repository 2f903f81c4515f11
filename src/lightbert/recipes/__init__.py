"""The packaged recipes, and how recipes are found and read.

A packaged file contains several recipes, as a line or a table each. `about` is the comment of a recipe, whose first
line is the summary; `parent` names the recipe that it extends.
"""

import itertools
import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from datetime import date, time
from functools import cache
from pathlib import Path
from typing import Any

from lightbert.config import merge
from lightbert.errors import InputError, nearest, unknown

FOLDER = Path(__file__).parent
_MAX_PARENTS = 100
_PACKAGED = re.compile(r"([\w-]+)|recipes/([\w-]+)\.toml")


@cache
def packaged() -> dict[str, dict[str, Any]]:
    """Return the packaged recipes by name, as they are in the files; those that start with `_` are parents only."""
    files = (tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml")))
    return {name: table for file in files for name, table in file.items()}


def names() -> list[str]:
    """Return the names of the packaged recipes, without those that are only parents of others."""
    return sorted(name for name in packaged() if not name.startswith("_"))


def find(recipe: str | Path) -> Path | str:
    """Return the path of a recipe in a file, or the name of a packaged one.

    ``x`` and ``recipes/x.toml`` name the packaged recipe x unless such a file exists in the working directory; other
    paths are files.
    """
    path = Path(recipe)
    if path.is_file():
        return path
    name = _packaged_name(recipe)
    if name.startswith("_"):
        raise InputError(f"'{name}' is only a parent of other recipes; 'lightbert recipes' lists the recipes")
    if name in names():
        return name
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give the path of a TOML file or the name of a recipe")
    if name:
        raise unknown("recipe", name, names(), remedy="'lightbert recipes' lists them")
    is_packaged = path.stem in names()
    remedy = f"the packaged recipe is '{path.stem}'" if is_packaged else "'lightbert recipes' lists the packaged ones"
    raise InputError(f"'{path}' not found; {remedy}")


def read(recipe: str | Path) -> dict[str, Any]:
    """Read a recipe; its key ``parent`` names the recipe that it extends: a relative file, or a packaged recipe."""
    return _read(find(recipe), children=())


def comment(recipe: str | Path) -> list[str]:
    """Return the lines of the comment of a recipe, in a file those at the top; the first line is the summary."""
    found = find(recipe)
    if isinstance(found, str):
        return str(packaged()[found]["about"]).splitlines()
    lines = found.read_text(encoding="utf-8").splitlines()
    return [
        line.removeprefix("#").removeprefix(" ").rstrip()
        for line in itertools.takewhile(lambda line: line.startswith("#"), lines)
    ]


def _packaged_name(recipe: str | Path) -> str:
    """The name of a packaged recipe that the argument can mean; "" for other paths."""
    match = _PACKAGED.fullmatch(str(recipe))
    return (match[1] or match[2]) if match else ""


def _read(path: Path | str, children: tuple[Path, ...]) -> dict[str, Any]:
    if isinstance(path, str):
        values = deepcopy(packaged()[path])
        del values["about"]
        return merge(_read(values.pop("parent"), children), values) if "parent" in values else values
    if path.resolve() in children:
        raise InputError(f"'{path}' has a cycle of parents; remove the key 'parent' from one of the files")
    if len(children) > _MAX_PARENTS:
        raise InputError(f"'{children[0]}' must have at most {_MAX_PARENTS} parents; merge some of the files")
    try:
        mapping = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        # Not only a TOMLDecodeError: bytes that are not UTF-8, numbers with thousands of digits.
        raise InputError(f"'{path}' is not valid TOML: {error}") from error
    except RecursionError:
        raise InputError(f"'{path}' is nested too deeply; a recipe has at most three levels") from None
    for key, value in _values(mapping):
        if isinstance(value, date | time):
            raise InputError(f"{key} in '{path}' must not be a date or a time, got {value}; put it in quotes")
    parent = mapping.pop("parent", None)
    if parent is None:
        return mapping
    if not isinstance(parent, str):
        raise InputError(f"'parent' in '{path}' must be the name of a TOML file or of a recipe, got {parent!r}")
    return merge(_read(_parent(path, parent), (*children, path.resolve())), mapping)


def _values(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a table and of the tables and lists in it, with dotted keys."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _values(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _values(inner, f"{key}[{number}]")
    else:
        yield key, value


def _parent(path: Path, parent: str) -> Path | str:
    """Return the parent of a recipe: a file, or the name of a packaged one, also of those that start with `_`."""
    if (path.parent / parent).is_file():
        return path.parent / parent
    if (name := _packaged_name(parent)) in packaged():
        return name
    similar = nearest(Path(parent).stem, names())
    remedy = f"did you mean '{similar}'?" if similar else "'lightbert recipes' lists the packaged recipes"
    raise InputError(f"the parent '{parent}' of '{path}' is neither a file next to it nor a packaged recipe; {remedy}")
