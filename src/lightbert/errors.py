"""The exception that means "the input is wrong, not the program"."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input, told in one sentence that names the value and the remedy.

    The command line prints the sentence and exits; a traceback would only hide it.
    """


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `name` was probably meant to be, if there is one."""
    found = difflib.get_close_matches(name, list(choices), n=1)
    return found[0] if found else None


def unknown(kind: str, name: str, choices: Iterable[str], *, remedy: str = "") -> InputError:
    """Build the error for a name that is not among `choices`.

    It suggests the nearest choice; without one it gives `remedy`, or lists all choices.
    """
    names = list(choices)
    similar = nearest(name, names)
    if similar:
        remedy = f"did you mean {similar!r}?"
    elif not remedy and names:
        remedy = f"choose from {', '.join(names)}"
    elif not remedy:
        remedy = "there is none to choose from"
    return InputError(f"unknown {kind} {name!r}; {remedy}")
