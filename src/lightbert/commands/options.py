"""Command-line options from a Config: each field is declared once, with its type, default and help text."""

import copy
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from lightbert.commands.report import AsJson
from lightbert.config import from_mapping
from lightbert.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


# A key of a recipe that is an option of a command: data.text_b=VALUE, but not a file name such as 'data.csv'.
_KEY = re.compile(
    r"(?<![\w'/])data\.(text|text_b|label|label_separator|separator|words|tags|word_column|tag_column|comments|"
    r"bad_rows|kind)\b(?:=(\S+))?"
)


@contextmanager
def options_in_errors() -> Iterator[None]:
    """Name the options of a command instead of the keys of a recipe in errors: `--text-b` for `data.text_b`."""
    try:
        yield
    except InputError as error:
        raise InputError(_KEY.sub(_option, str(error))) from error


def _option(key: "re.Match[str]") -> str:
    option = f"--{key[1].replace('_', '-')}"
    return option if key[2] is None else f"{option} {key[2]}"


@dataclass(frozen=True)
class CommaSeparated:
    """Marks a tuple of texts that the command line takes as one text: ``--labels negative,positive``."""


def options(config: type[T], as_json: Any = AsJson) -> Callable[[Callable[[T, bool], None]], Callable[..., None]]:
    """Make a command for typer out of a function that takes a config and whether to print JSON.

    Fields of the config are ``Annotated`` with ``typer.Argument`` or ``typer.Option``; ``--json`` is added. The config
    checks choices (``Literal``), so that the error suggests the nearest one.
    """
    hints = get_type_hints(config, include_extras=True)
    listed = {name for name, hint in hints.items() if CommaSeparated() in getattr(hint, "__metadata__", ())}
    declared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if _is_required(field) else _default(field.default),
            annotation=_annotation(hints[field.name]),
        )
        for field in fields(config)
    ]
    declared.append(
        inspect.Parameter("json", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation=as_json)
    )

    def decorate(handle: Callable[[T, bool], None]) -> Callable[..., None]:
        def command(*, json: bool = False, **values: Any) -> None:
            given = {
                name: [each.strip() for each in value.split(",")] if name in listed and value else value
                for name, value in values.items()
                if value is not None and not (name in listed and not value)
            }
            handle(from_mapping(config, given), json)

        command.__doc__ = handle.__doc__
        command.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in declared}
        return command

    return decorate


def _is_required(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _default(value: Any) -> Any:
    """The default as typer takes it: an empty tuple is nothing given."""
    return None if value == () else value


def _annotation(hint: Any) -> Any:
    """The type of an option: typer reads several texts as a list, and choices and names with commas as one text."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *metadata = get_args(hint)
    infos = [copy.copy(each) for each in metadata if not isinstance(each, CommaSeparated)]
    if get_origin(kind) is tuple:
        kind = str | None if len(infos) < len(metadata) else list[str] | None
    elif get_origin(kind) is Literal:
        for info in infos:
            info.metavar = "|".join(get_args(kind))
        kind = str
    return Annotated[kind, *infos]
