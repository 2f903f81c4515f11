"""Shell completion: the script that a shell evaluates, and the candidates for the word before the cursor."""

import shlex
from collections.abc import Iterable
from typing import Any

import typer

from lightbert import recipes
from lightbert.commands import COMMANDS, function_of
from lightbert.commands.recipes import VERBS, recipe_class, verbs_for
from lightbert.config import Key, keys
from lightbert.errors import unknown

_SCRIPTS = {
    "bash": """\
_lightbert() {
    local IFS=$'\\n'
    COMPREPLY=($(lightbert --complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _lightbert lightbert
""",
    "zsh": """\
_lightbert() {
    local -a found
    found=(${(f)"$(lightbert --complete zsh "${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
    if (( ${#found} )); then
        compadd -S '' -- $found
    else
        compset -P '*='
        _files
    fi
}
compdef _lightbert lightbert
""",
}


def script(shell: str) -> str:
    """Return the script to evaluate in a shell: ``eval "$(lightbert --completion bash)"``."""
    if shell not in _SCRIPTS:
        raise unknown("shell", shell, _SCRIPTS)
    return _SCRIPTS[shell]


def candidates(shell: str, line: str) -> list[str]:
    """Return the completions of the last word of a command line; the shell completes files if there are none."""
    _, *words = _split(line)
    last = words[-1] if words else ""
    matches = [choice for choice in _choices(words) if choice.startswith(last) and choice != last]
    # bash splits words at "=" and replaces only the part after it.
    return [choice.partition("=")[2] for choice in matches] if shell == "bash" and "=" in last else matches


def _split(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError:
        # An open quote.
        words = line.split()
    return [*words, ""] if line[-1:].isspace() else words


def _choices(words: list[str]) -> Iterable[str]:
    if len(words) < 2:
        return [*COMMANDS, "--help", "--version"]
    verb, *earlier, last = words
    if verb not in COMMANDS:
        return []
    options = _options(verb)
    if last.startswith("-"):
        return options
    if earlier and options.get(earlier[-1]):
        return options[earlier[-1]]
    if verb in VERBS:
        return _recipes(verb) if not earlier else _pairs(verb, earlier, last)
    if verb == "recipes" and not earlier:
        return recipes.names()
    return []


def _options(verb: str) -> dict[str, list[str]]:
    """The options of a command, with their choices."""
    app = typer.Typer(add_completion=False)
    app.command()(function_of(verb))
    options: dict[str, list[str]] = {"--help": []}
    for parameter in typer.main.get_command(app).params:
        # `commands.options` shows the choices of an option as its placeholder: mean|cls|max.
        choices = (parameter.metavar or "").split("|")
        for name in parameter.opts:
            if name.startswith("-"):
                options[name] = choices if len(choices) > 1 else []
    return options


def _recipes(verb: str) -> list[str]:
    return [name for name in recipes.names() if verb in verbs_for(recipes.read(name))]


def _pairs(verb: str, earlier: list[str], last: str) -> list[str]:
    """The keys of a recipe that the line doesn't have yet, or the values of the key before the cursor."""
    known = keys(recipe_class(verb))
    name, equals, _ = last.partition("=")
    if equals:
        return [f"{name}={value}" for key in known if key.name == name for value in _values(key)]
    used = {word.partition("=")[0] for word in earlier}
    return [f"{key.name}=" for key in known if key.name not in used]


def _values(key: Key) -> list[str]:
    default: Any = key.default
    if isinstance(default, bool):
        return ["true", "false"]
    return key.allowed.split(", ") if isinstance(default, str) and key.allowed else []
