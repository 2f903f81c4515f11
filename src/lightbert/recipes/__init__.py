"""The recipes that ship with the package, and how a recipe is found and read."""

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

from lightbert.config import merge
from lightbert.errors import InputError, nearest, unknown

FOLDER = Path(__file__).parent
_PACKAGED = re.compile(r"([\w-]+)|recipes/([\w-]+)\.toml")


def names() -> list[str]:
    """Return the names of the packaged recipes; files that begin with `_` are parents of others and not listed."""
    return sorted(path.stem for path in FOLDER.glob("[!_]*.toml"))


def find(recipe: str | Path) -> Path:
    """Return the file of a recipe.

    ``x`` and ``recipes/x.toml`` name the packaged recipe x where the working folder has no such file; any other path is
    a file of the user's.
    """
    path = Path(recipe)
    if path.is_file():
        return path
    name = _packaged_name(recipe)
    if name.startswith("_"):
        raise InputError(f"'{name}' is a parent of other recipes; 'lightbert recipes' lists those that can be run")
    if name in names():
        return FOLDER / f"{name}.toml"
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give the path of a TOML file or the name of a recipe")
    if name:
        raise unknown("recipe", name, names(), remedy="'lightbert recipes' lists them")
    is_packaged = path.stem in names()
    remedy = f"the packaged recipe is '{path.stem}'" if is_packaged else "'lightbert recipes' lists the packaged ones"
    raise InputError(f"there is no file '{path}'; {remedy}")


def read(recipe: str | Path) -> dict[str, Any]:
    """Read a recipe; its key ``parent`` names another one that it refines: a file relative to it, or a packaged one."""
    return _read(find(recipe), children=())


def comment(recipe: str | Path) -> list[str]:
    """Return the lines of the comment at the top of a recipe; the first one sums it up."""
    lines = find(recipe).read_text(encoding="utf-8").splitlines()
    return [
        line.removeprefix("#").removeprefix(" ").rstrip()
        for line in itertools.takewhile(lambda line: line.startswith("#"), lines)
    ]


def _packaged_name(recipe: str | Path) -> str:
    """The name by which a packaged recipe would be meant; "" for a path of another form."""
    found = _PACKAGED.fullmatch(str(recipe))
    return (found[1] or found[2]) if found else ""


def _read(path: Path, children: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in children:
        raise InputError(f"'{path}' is its own parent; remove the key 'parent' from one of the files of the circle")
    try:
        mapping = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is not valid TOML: {error}") from error
    parent = mapping.pop("parent", None)
    if parent is None:
        return mapping
    if not isinstance(parent, str):
        raise InputError(f"'parent' in '{path}' must be the name of a TOML file or of a recipe, got {parent!r}")
    return merge(_read(_parent(path, parent), (*children, path.resolve())), mapping)


def _parent(path: Path, parent: str) -> Path:
    """The file that a recipe names as its parent; packaged files that begin with `_` are allowed here."""
    if (path.parent / parent).is_file():
        return path.parent / parent
    packaged = FOLDER / f"{_packaged_name(parent)}.toml"
    if packaged.is_file():
        return packaged
    similar = nearest(Path(parent).stem, names())
    remedy = f"did you mean '{similar}'?" if similar else "'lightbert recipes' lists the packaged recipes"
    raise InputError(f"'{path}' names the parent '{parent}', which is neither a file beside it nor a recipe; {remedy}")
