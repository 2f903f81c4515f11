"""Where the recipes are, and how to read them."""

from pathlib import Path

from lightbert.config import from_mapping, read_toml
from lightbert.train.recipe import Recipe

FOLDER = Path(__file__).parents[2] / "recipes"
NAMES = sorted(path.stem for path in FOLDER.glob("[!_]*.toml"))
PARENTS = sorted(path.stem for path in FOLDER.glob("_*.toml"))


def read(name: str) -> Recipe:
    """A recipe as it is, with somewhere to read from and to write to."""
    return from_mapping(Recipe, {"data": "data", "out": "out", **read_toml(FOLDER / f"{name}.toml")})
