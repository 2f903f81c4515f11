"""The sentences of docstrings by the function or class that they document, of single modules and packages."""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lightbert.data.text.docstrings import module_files
from lightbert.data.text.prose import prose

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class DocumentedObject:
    """A module, a class, a function or a method, with the sentences of its docstring."""

    name: str
    """The file below the package and the qualified name, such as ``events.py:Handle.cancel``."""
    sentences: tuple[str, ...]


def documented_objects(module: str) -> list[DocumentedObject]:
    """Return what a module or package documents, such as ``numpy.linalg``; nothing if it isn't installed."""
    return [
        DocumentedObject(name, tuple(sentences))
        for name, docstring in docstrings_by_name(module)
        if (sentences := prose(docstring))
    ]


def docstrings_by_name(module: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each documented object of a module or package and its docstring, without indentation."""
    for path in module_files(module):
        for name, docstring in _docstrings(_parse(path), ""):
            yield f"{path.name}:{name}", docstring


def _parse(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        # Old modules contain invalid escape sequences, which are irrelevant here.
        warnings.simplefilter("ignore")
        return ast.parse(path.read_bytes())


def _docstrings(node: _Documented, name: str) -> Iterator[tuple[str, str]]:
    if text := ast.get_docstring(node):
        yield name, text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(child, f"{name}.{child.name}".lstrip("."))
