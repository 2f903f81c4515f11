"""The exception that means "the input is wrong, not the program"."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input, told in one sentence that names the value and the remedy.

    The command line prints the sentence and exits; a traceback would only hide it.
    """


def unknown(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """Build the error for a name that is not among `choices`: the nearest one is suggested, else all are listed."""
    names = list(choices)
    nearest = difflib.get_close_matches(name, names, n=1)
    if nearest:
        remedy = f"did you mean {nearest[0]!r}?"
    elif names:
        remedy = f"choose from {', '.join(names)}"
    else:
        remedy = "there is none to choose from"
    return InputError(f"unknown {kind} {name!r}; {remedy}")
