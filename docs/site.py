"""Hooks of MkDocs, called by `make docs`: pages that are generated from the code, and links to files outside docs/."""

import ast
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "lightbert"
PAGES_OF_THE_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the repository's root and the generated ones."""
    pages = {name: (ROOT / source).read_text(encoding="utf-8") for source, name in PAGES_OF_THE_ROOT.items()}
    pages |= {"reference/api.md": api(), "reference/commands.md": commands(), "reference/files.md": source_files()}
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Write links to files that are not part of the site as their names."""
    origin = next((source for source, name in PAGES_OF_THE_ROOT.items() if name == page.file.src_uri), None)
    folder = ROOT if origin else (ROOT / "docs" / page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = (folder / target).resolve()
        if not path.exists() or not path.is_relative_to(ROOT):
            return match[0]
        name = path.relative_to(ROOT).as_posix()
        page_name = PAGES_OF_THE_ROOT.get(name) or name.removeprefix("docs/")
        if files.get_file_from_path(page_name):
            return f"[{text}]({posixpath.relpath(page_name, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"
        return text if name in text else f"{text} (`{name}`)"

    markdown = _outside_code(r"\[([^\]\[]+)\]\(([\w./-]+)(#[\w-]+)?\)", link, markdown)
    # Tokens such as [CLS] would be taken for references.
    return _outside_code(r"\[(?=[A-Z]+\])", lambda match: f"\\{match[0]}", markdown)


def _outside_code(pattern: str, replace: Callable[[re.Match[str]], str], markdown: str) -> str:
    code = r"^ *```.*?^ *```|`[^`\n]+`"
    both = re.compile(rf"{code}|{pattern}", re.DOTALL | re.MULTILINE)
    return both.sub(lambda match: match[0] if match[0].lstrip().startswith("`") else replace(match), markdown)


def api() -> str:
    """Document the public functions, and the class of models."""
    import lightbert

    functions = "\n".join(f"::: lightbert.{name}" for name in lightbert.__all__)
    options = "{members: [forward, predict, predict_proba, encode], inherited_members: true}"
    model = f"::: lightbert.tasks.predict.text_model.TextModel\n    options: {options}"
    return f"# Functions\n\n{functions}\n\n{model}\n"


def commands() -> str:
    """Document every command: its help text, arguments and options."""
    import typer

    from lightbert.commands import COMMANDS, function_of

    parts = ["# Commands\n\nAlso printed by `lightbert COMMAND --help`.\n"]
    for verb, (_, summary) in COMMANDS.items():
        app = typer.Typer(add_completion=False)
        app.command(verb)(function_of(verb))
        command = typer.main.get_command(app)
        rows = [f"| `{_name(each)}` | {_default(each)} | {_cell(each.help)} |" for each in command.params]
        table = "\n".join(["| option | default | |", "| --- | --- | --- |", *rows])
        parts.append(f"## {verb}\n\n{_escape(command.help or summary)}\n\n{table}\n")
    return "\n".join(parts)


def source_files() -> str:
    """List the files of every package, with the first line of their docstrings."""
    parts = [
        "# Files\n\nThe first line of every docstring. [Architecture](../architecture.md) explains the packages.\n"
    ]
    for folder in sorted({path.parent for path in SOURCE.rglob("*.py")}):
        name = folder.relative_to(SOURCE.parent).as_posix()
        rows = [f"| `{path.name}` | {_cell(_first_line(path))} |" for path in sorted(folder.glob("*.py"))]
        parts.append(f"## {name}\n\n| file | |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def _name(parameter: Any) -> str:
    return parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.name.upper()


def _default(parameter: Any) -> str:
    return "" if parameter.default in (None, "", False, ()) else f"`{parameter.default}`"


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|").replace("[", "\\[")


def _escape(text: str) -> str:
    return text.replace("<", "&lt;").replace("\b", "").strip()
