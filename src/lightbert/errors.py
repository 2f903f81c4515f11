"""`InputError`, the exception for bad input; suggestions for misspelled names, and lists of names in messages."""

import difflib
import re
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input, described in one sentence that names the value and the remedy.

    The command line prints the sentence without a traceback and exits with a non-zero status.
    """

    def __init__(self, sentence: str) -> None:
        # Messages of other libraries, which are quoted, can have several lines.
        super().__init__(re.sub(r"\s*\n\s*", " ", sentence))


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice most similar to `name`, or None if none is similar."""
    found = difflib.get_close_matches(name, list(choices), n=1)
    return found[0] if found else None


def listed(names: Iterable[str], *, most: int = 20, longest: int = 60) -> str:
    """Join names for a message; only the first ones if there are many, and only the start of long ones."""
    every = list(names)
    shown = [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in every[:most]]
    return ", ".join(shown) + (f", … ({len(every):,} in all)" if len(every) > most else "")


def model_not_found(name: str) -> InputError:
    """Build the error for a model that is not there."""
    return InputError(
        f"model '{name}' not found; give a folder with config.json, the name of a preset or a bundled model, the "
        "prefix of a TensorFlow 1 checkpoint, or org/name for a model on the Hugging Face Hub"
    )


def unknown(kind: str, name: str, choices: Iterable[str], *, remedy: str = "") -> InputError:
    """Build the error for a name that is not one of `choices`.

    The message suggests the most similar choice. If there is none, it gives `remedy`, or lists all choices.
    """
    names = list(choices)
    similar = nearest(name, names)
    if similar:
        remedy = f"did you mean {similar!r}?"
    elif not remedy and names:
        remedy = f"choose from {', '.join(names)}"
    elif not remedy:
        remedy = "no choices are available"
    return InputError(f"unknown {kind} {name!r}; {remedy}")
