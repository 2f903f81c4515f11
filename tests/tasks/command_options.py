"""The options of commands, to compare with the documentation."""

from collections.abc import Callable

import typer


def option_names(command: Callable[..., None]) -> set[str]:
    """The options that the parser of a command accepts."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return {
        "--help",
        *(
            name
            for parameter in typer.main.get_command(app).params
            for name in (*parameter.opts, *parameter.secondary_opts)
        ),
    }
