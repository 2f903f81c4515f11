"""The command line: imports the module of a command, runs it, and prints errors as one sentence."""

import codecs
import errno
import io
import json
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO, cast

import typer

from lightbert.commands import COMMANDS, function_of
from lightbert.commands.options import unknown_option
from lightbert.commands.recipes import VERBS, as_assignment, key_list
from lightbert.errors import InputError, describe_memory, is_out_of_memory, printable, unknown
from lightbert.files import too_long
from lightbert.train.signals import EXIT_CODE, StoppedEarlyError, catch_signals

# typer doesn't export the base class of its parsing errors, and its location differs between releases.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


_ESCAPED = "lightbert.escaped"
"""The way in which the standard streams write characters that they can't represent."""


class OutputError(OSError):
    """Standard output can't be written, for example because its disk is full."""


class _Output(io.FileIO):
    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None


class _Messages(io.FileIO):
    """Messages and progress bars are lost if nobody reads them any more; the work goes on."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError:
            return len(memoryview(content).cast("B"))


def set_up_streams() -> None:
    """Prepare standard output and error; called once, before anything is printed."""
    codecs.register_error(_ESCAPED, _escape)
    sys.stdout = _stream(sys.stdout, _Output(1, "w", closefd=False))
    sys.stderr = _stream(sys.stderr, _Messages(2, "w", closefd=False))


def _stream(before: TextIO, raw: io.FileIO) -> TextIO:
    buffered = before.line_buffering if isinstance(before, io.TextIOWrapper) else False
    return io.TextIOWrapper(io.BufferedWriter(raw), before.encoding, _ESCAPED, line_buffering=buffered)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Write characters that the stream can't represent as in JSON, where the result has the same meaning."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code: 0 on success, 2 if the arguments can't be parsed."""
    if arguments is None:
        set_up_streams()
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
    except OutputError as error:
        _discard_output()
        return _fail(f"cannot write to standard output: {error.strerror}")
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        if is_out_of_memory(error):
            return _fail(f"{describe_memory(error)}; {_smaller(sys.argv[1:] if arguments is None else arguments)}")
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
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    # Commands that take key=value pairs list the keys below the options.
    epilog = key_list(verb) if verb in VERBS and {"--help", "-h"}.intersection(rest) else None
    app.command(context_settings={"help_option_names": ["--help", "-h"]}, epilog=epilog)(function_of(verb))
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
        return f"lightbert: {printable(str(message))}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def _fail(sentence: str, code: int = 1) -> int:
    print(f"lightbert: {printable(sentence)}", file=sys.stderr)
    return code
