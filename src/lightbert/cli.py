"""The command line: imports the module of a command, runs it, and prints errors as one sentence."""

import errno
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import typer

from lightbert import library_memory, memory, standard_streams
from lightbert.commands import COMMANDS
from lightbert.commands.training import VERBS, as_assignment
from lightbert.commands.unknown_options import unknown_option
from lightbert.errors import InputError, unknown
from lightbert.files import too_long
from lightbert.train.signals import EXIT_CODE, StoppedEarlyError, catch_signals

# typer doesn't export the base class of its parsing errors, and its location differs between releases.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code: 0 on success, 2 if the arguments can't be parsed."""
    if arguments is None:
        standard_streams.set_up()
    warnings.formatwarning = _warning
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        # Raises BrokenPipeError here, where it is handled, instead of at the interpreter's exit.
        sys.stdout.flush()
    except _UnknownOptionError as error:
        return _fail(str(error), code=2)
    except InputError as error:
        return _fail(str(error))
    except _UsageError as error:
        return _fail(_explain(error), code=2)
    except typer.Exit as end:
        return end.exit_code
    except StoppedEarlyError:
        return EXIT_CODE
    except KeyboardInterrupt:
        return _fail("interrupted", code=130)
    except BrokenPipeError:
        _discard_output()
        return 1
    except standard_streams.OutputError as error:
        _discard_output()
        return _fail(f"cannot write to standard output: {error.strerror}")
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        if memory.is_out_of_memory(error):
            return _fail(f"{memory.describe(error)}; {_smaller(sys.argv[1:] if arguments is None else arguments)}")
        if not isinstance(error, OSError):
            raise
        if error.errno == errno.ENAMETOOLONG:
            return _fail(too_long(str(error.filename)))
        return _fail(f"{error.strerror}: '{error.filename}'" if error.filename else str(error))
    return code


def _discard_output() -> None:
    """Discard what is still buffered, which Python would write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    verb, *rest = arguments or ["--help"]
    if verb in ("--help", "-h"):
        print(_help())
        return 0
    if verb == "--version":
        import lightbert

        print(f"lightbert {lightbert.__version__}")
        return 0
    if verb in ("--completion", "--complete"):
        _complete(verb, rest)
        return 0
    if verb.startswith("-"):
        raise unknown("option", verb, ["--help", "--version", "--completion"])
    if verb not in COMMANDS:
        raise unknown("command", verb, COMMANDS)
    # From here on, so that a signal during the imports, which take seconds, has the same exit code.
    with catch_signals() if verb in (*VERBS, "demo") else nullcontext():
        return _run(verb, rest)


def _run(verb: str, rest: list[str]) -> int:
    if not {"--help", "-h"}.intersection(rest):
        library_memory.check(verb)
    module = importlib.import_module(COMMANDS[verb][0])
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    # Commands that take key=value pairs list the keys below the options.
    epilog = module.epilog() if hasattr(module, "epilog") and {"--help", "-h"}.intersection(rest) else None
    app.command(context_settings={"help_option_names": ["--help", "-h"]}, epilog=epilog)(module.command)
    command = typer.main.get_command(app)
    try:
        # `app()` would handle errors, interrupts and broken pipes itself.
        with command.make_context(f"lightbert {verb}", [*rest]) as context:
            command.invoke(context)
    except _UsageError as error:
        # Only the error for an unknown option has `possibilities`; typer doesn't export its class.
        if hasattr(error, "possibilities"):
            names = [each for parameter in command.params for each in parameter.opts]
            raise _unknown_option(error, verb, [*names, "--help"], rest) from None
        raise
    return 0


def _complete(option: str, rest: list[str]) -> None:
    """Print the completion script of a shell, or for the script the candidates for a command line."""
    from lightbert.commands.completion import candidates, script

    if option == "--complete" and len(rest) == 2:
        print(*candidates(*rest), sep="\n")
    else:
        print(script(rest[0] if rest else ""), end="")


class _UnknownOptionError(InputError):
    """An unknown option of a command."""


def _unknown_option(error: typer.BadParameter, verb: str, names: list[str], rest: list[str]) -> _UnknownOptionError:
    """Suggest a key=value pair, or one of the arguments and options with these names."""
    name = str(getattr(error, "option_name", ""))
    pair = as_assignment(verb, name, rest) if verb in VERBS else None
    if pair is not None:
        return _UnknownOptionError(f"unknown option '{name}'; keys are given without dashes; write {pair}")
    arguments = [each for each in names if not each.startswith("-")]
    options = [each for each in names if each.startswith("-")]
    return _UnknownOptionError(str(unknown_option(verb, name, arguments, options)))


def _smaller(arguments: Sequence[str]) -> str:
    """Name the keys or options of a command that reduce its memory."""
    verb = next(iter(arguments), "")
    if memory.address_space_limit() is not None:
        return f"raise the limit, or {_smaller_options(verb)}"
    return _smaller_options(verb)


def _smaller_options(verb: str) -> str:
    if verb in VERBS:
        return "lower batch= or length=, raise accumulate=, or choose a smaller model="
    if verb in ("predict", "evaluate"):
        return "lower --batch, or choose a smaller model"
    return "lower --workers, or use a machine with more memory" if verb == "prepare" else "choose a smaller model"


def _explain(error: typer.BadParameter) -> str:
    command = error.ctx.command_path if error.ctx is not None else "lightbert"
    return f"{error.format_message().rstrip('.')}; see '{command} --help'"


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = [f"  {verb:{width}}  {summary}" for verb, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "lightbert: small, fast text encoders with convolution and attention",
            "",
            "Usage: lightbert COMMAND [ARGUMENTS]",
            "       lightbert COMMAND --help",
            "       lightbert --version",
            "       lightbert --completion bash|zsh   print a script for shell completion",
            "",
            "Commands:",
            *commands,
        ]
    )


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format warnings of lightbert as one line, and others with their location."""
    if category is UserWarning and Path(filename).is_relative_to(Path(__file__).parent):
        return f"lightbert: {message}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _fail(sentence: str, code: int = 1) -> int:
    print(f"lightbert: {sentence}", file=sys.stderr)
    return code
