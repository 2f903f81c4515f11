"""The models that ship with the package, by name."""

from pathlib import Path

from lightbert.errors import InputError

FOLDER = Path(__file__).parent
NAMES = ("convbert-small-en", "convbert-small-en/generator", "convbert-thin-en")
"""A model's name is its path below `FOLDER`."""

_WEIGHTS = "model.safetensors"


def folder_of(name: str) -> Path:
    """Return the folder of a bundled model; raise an InputError if its weights aren't installed."""
    folder = FOLDER / name
    if not (folder / _WEIGHTS).is_file():
        raise InputError(
            f"the weights of the bundled model '{name}' are not in this installation ('{folder / _WEIGHTS}' not "
            "found); install a released wheel, or give another model"
        )
    return folder


def installed() -> dict[str, Path]:
    """Return the folders of the bundled models whose weights are installed, by name."""
    return {name: FOLDER / name for name in NAMES if (FOLDER / name / _WEIGHTS).is_file()}
