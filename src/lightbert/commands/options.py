"""Command-line options from a Config: each field is declared once, with its type, default and help text."""

import copy
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from lightbert import bundled
from lightbert.commands.report import AsJson
from lightbert.config import from_mapping
from lightbert.errors import InputError, model_not_found, nearest
from lightbert.files import read_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


T = TypeVar("T", bound="DataclassInstance")


# A key of a recipe that is an option of a command: data.text_b=VALUE, but not a file name such as 'data.csv'.
_KEY = re.compile(
    r"(?<![\w'/])data\.(text|text_b|label|label_separator|separator|words|tags|word_column|tag_column|comments|"
    r"bad_rows|kind|header|encoding)\b(?:=(\S+))?"
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
            named = {
                name: [text.strip() for text in value.split(",")] if name in listed and value else value
                for name, value in values.items()
                if value is not None and not (name in listed and not value)
            }
            handle(from_mapping(config, named), json)

        command.__doc__ = handle.__doc__
        command.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in declared}
        return command

    return decorate


def check_unused(config: "DataclassInstance", used: Collection[str], reason: str) -> None:
    """Check that the options that a command doesn't use have their defaults."""
    for field in fields(config):
        if field.name not in used and getattr(config, field.name) != field.default:
            hint = get_type_hints(type(config), include_extras=True)[field.name]
            is_argument = any(type(info).__name__ == "ArgumentInfo" for info in hint.__metadata__)
            name = field.name.upper() if is_argument else f"--{field.name.replace('_', '-')}"
            raise InputError(f"{name} can't be used {reason}; leave it out")


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
    infos = [copy.copy(info) for info in metadata if not isinstance(info, CommaSeparated)]
    choices = next((part for part in (kind, *get_args(kind)) if get_origin(part) is Literal), None)
    if get_origin(kind) is tuple:
        kind = str | None if len(infos) < len(metadata) else list[str] | None
    elif choices is not None:
        for info in infos:
            info.metavar = "|".join(get_args(choices))
        kind = str if kind is choices else str | None
    return Annotated[kind, *infos]


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
    similar = nearest(name, [known.lstrip("-") for known in options])
    known = (*arguments, *options)
    meant = next((alias for alias in _ALIASES.get(name, ()) if alias in known), f"--{similar}")
    if meant in arguments:
        return _argument_error(verb, option, meant, arguments)
    remedy = f"did you mean {meant!r}?" if meant in options else f"choose from {', '.join(options)}"
    return InputError(f"unknown option {option!r}; {remedy}")


def _argument_error(verb: str, option: str, argument: str, arguments: Sequence[str]) -> InputError:
    usage = " ".join(arguments).upper()
    return InputError(
        f"unknown option {option!r}; {argument.upper()} is given without an option: lightbert {verb} {usage}"
    )


_NOT_FILES = ("", "-", "hub")


def check_file(path: str) -> None:
    """Check that a file or folder exists; "-" is standard input, and "hub" the Hugging Face Hub."""
    if path not in _NOT_FILES and not _exists(path):
        raise InputError(f"'{path}' not found; check the path")


def check_corpus(data: str, out: str) -> None:
    """Check that the prepared text of a new run exists; one that has begun may be past the phase that needs it."""
    if not is_finished(out) and not _exists(f"{out}/checkpoints") and not _exists(data):
        raise InputError(f"'{data}' has no manifest.json; give a folder written by `lightbert prepare`")


def check_model(name: str) -> None:
    """Check that a model exists if its name can only be a path; other names are looked up when it is loaded."""
    if "/" not in name or name in bundled.NAMES or not _exists(str(Path(name).parent)):
        return
    if not _exists(name) and not _exists(f"{name}.index"):
        raise model_not_found(name)


def stored_task(model: str) -> dict[str, Any] | None:
    """What a model was fine-tuned for, from its folder, without torch; None if only loading the model can tell."""
    if model in bundled.NAMES:
        return {}
    try:
        content = json.loads(read_text(Path(model) / "config.json"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("model_type") != "lightbert" or "family" not in content:
        return None
    task: Any = content.get("task", {})
    data = task.get("data", {}) if isinstance(task, dict) else None
    if not isinstance(data, dict) or not all(isinstance(value, str | int) for value in data.values()):
        return None
    return dict(task)


def is_finished(out: str) -> bool:
    """Whether a run is finished; its report needs no data."""
    return _exists(f"{out}/result.json")


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        # Such as a name that is too long.
        return False
