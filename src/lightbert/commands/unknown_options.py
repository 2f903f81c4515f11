"""The error for an unknown option: names the argument or the option that was probably meant."""

from collections.abc import Sequence

from lightbert.errors import InputError, nearest

# What other commands and other programs call an argument or an option; the first name that the command has is meant.
_ALIASES = {
    **dict.fromkeys(("model", "checkpoint", "model-name", "model-path"), ("model", "subject", "source", "name")),
    **dict.fromkeys(
        ("file", "data", "input", "input-file", "texts"), ("--file", "--data", "file", "sources", "--text")
    ),
    **dict.fromkeys(("out", "output", "output-dir", "output-file", "o"), ("--out", "target")),
    **dict.fromkeys(("column", "text-column", "field"), ("--text", "--column")),
    **dict.fromkeys(("pair", "text-pair"), ("--pair", "--text-b")),
    **dict.fromkeys(("batch-size", "bs"), ("--batch",)),
    **dict.fromkeys(("max-length", "max-seq-length", "max-len"), ("--length",)),
    **dict.fromkeys(("format", "runtime"), ("--to", "--runtimes")),
}


def unknown_option(verb: str, option: str, arguments: Sequence[str], options: Sequence[str]) -> InputError:
    """Build the error for an option that a command doesn't have.

    arguments and options: the names of those that it has, without and with dashes.
    """
    name = option.lstrip("-")
    if name in arguments:
        return _argument_error(verb, option, name, arguments)
    # Without the dashes, which would make short names similar.
    similar = nearest(name, [each.lstrip("-") for each in options])
    meant = next((each for each in _ALIASES.get(name, ()) if each in arguments or each in options), f"--{similar}")
    if meant in arguments:
        return _argument_error(verb, option, meant, arguments)
    remedy = f"did you mean {meant!r}?" if meant in options else f"choose from {', '.join(options)}"
    return InputError(f"unknown option {option!r}; {remedy}")


def _argument_error(verb: str, option: str, argument: str, arguments: Sequence[str]) -> InputError:
    usage = " ".join(each.upper() for each in arguments)
    return InputError(
        f"unknown option {option!r}; {argument.upper()} is given without an option: lightbert {verb} {usage}"
    )
