"""The program `lightbert`: finds the verb, imports its module, and turns bad input into one sentence."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import cast

import typer

from lightbert.commands import COMMANDS
from lightbert.commands.training import VERBS, as_assignment
from lightbert.errors import InputError, unknown

# typer exports only one leaf of its parsing errors and moves their base from release to release.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code: 0 only on success, 2 for a line that cannot be parsed."""
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        # A reader that went away is noticed here at the latest, not in the interpreter's last breath.
        sys.stdout.flush()
    except _UnknownOptionError as error:
        return _fail(str(error), code=2)
    except InputError as error:
        return _fail(str(error))
    except _UsageError as error:
        return _fail(_explain(error), code=2)
    except typer.Exit as end:
        return end.exit_code
    except KeyboardInterrupt:
        return _fail("interrupted", code=130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.strerror}: '{error.filename}'" if error.filename else str(error))
    return code


def _dispatch(arguments: list[str]) -> int:
    verb, *rest = arguments or ["--help"]
    if verb in ("--help", "-h"):
        print(_help())
        return 0
    if verb == "--version":
        import lightbert

        print(f"lightbert {lightbert.__version__}")
        return 0
    if verb.startswith("-"):
        raise unknown("option", verb, ["--help", "--version"])
    if verb not in COMMANDS:
        raise unknown("command", verb, COMMANDS)
    module = importlib.import_module(COMMANDS[verb][0])
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    # A verb that takes key=value pairs explains its keys below its options.
    epilog = module.epilog() if hasattr(module, "epilog") and {"--help", "-h"}.intersection(rest) else None
    app.command(context_settings={"help_option_names": ["--help", "-h"]}, epilog=epilog)(module.command)
    command = typer.main.get_command(app)
    try:
        # Not `app()`: it would print errors, interrupts and broken pipes its own way.
        with command.make_context(f"lightbert {verb}", [*rest]) as context:
            command.invoke(context)
    except _UsageError as error:
        # Only the error of an unknown option has `possibilities`; typer does not export its class.
        if hasattr(error, "possibilities"):
            options = [each for parameter in command.params for each in parameter.opts if each.startswith("-")]
            raise _unknown_option(error, verb, [*options, "--help"], rest) from None
        raise
    return 0


class _UnknownOptionError(InputError):
    """An option that the verb does not have."""


def _unknown_option(error: typer.BadParameter, verb: str, options: list[str], rest: list[str]) -> _UnknownOptionError:
    """Suggest the key=value pair that was meant, or the nearest option."""
    name = str(getattr(error, "option_name", ""))
    pair = as_assignment(verb, name, rest) if verb in VERBS else None
    if pair is not None:
        return _UnknownOptionError(f"unknown option '{name}'; keys are given without dashes: write {pair}")
    return _UnknownOptionError(str(unknown("option", name, options)))


def _explain(error: typer.BadParameter) -> str:
    command = error.ctx.command_path if error.ctx is not None else "lightbert"
    return f"{error.format_message().rstrip('.')}; see '{command} --help'"


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = [f"  {verb:{width}}  {summary}" for verb, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "lightbert: small, fast text encoders in which convolution and attention work together",
            "",
            "Usage: lightbert COMMAND [ARGUMENTS]",
            "       lightbert COMMAND --help",
            "       lightbert --version",
            "",
            "Commands:",
            *commands,
        ]
    )


def _fail(sentence: str, code: int = 1) -> int:
    print(f"lightbert: {sentence}", file=sys.stderr)
    return code
