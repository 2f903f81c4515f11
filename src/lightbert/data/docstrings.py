"""The built-in corpus: the docstrings of the installed Python packages, read without importing them.

`docstrings` means the standard library and everything in site-packages; `docstrings:stdlib,numpy` selects packages.
"""

import ast
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from lightbert.data.sentences import prose
from lightbert.errors import unknown
from lightbert.processes import map_in_order

STANDARD_LIBRARY = "stdlib"

# Tests and vendored copies mostly repeat text.
_SKIPPED_FOLDERS = {
    *("test", "tests", "testing", "_vendor", "vendor", "site-packages", "idlelib", "lib2to3", "__pycache__"),
}
_FILES_PER_TASK = 32

_DocstringNode: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def size(specification: str) -> int:
    """Return the size in bytes of the Python source files of `docstrings` or `docstrings:PACKAGE,…`."""
    return sum(path.stat().st_size for path in _files(specification))


def documents(specification: str, workers: int = 1) -> Iterator[tuple[str, int]]:
    """Yield a document for each module and each class, one sentence per line, with the bytes of source read so far.

    Each sentence is kept once, because packages repeat the same remarks hundreds of times.
    """
    seen: set[str] = set()
    position = 0
    for path, texts in _extract_all(_files(specification), workers):
        position += path.stat().st_size
        for sentences in texts:
            new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in seen]
            seen.update(new)
            if new:
                yield "\n".join(new), position


def extract(source: str) -> list[list[str]]:
    """Return the sentences of a module and its functions, then the sentences of each of its classes."""
    with warnings.catch_warnings():
        # Old packages contain invalid escape sequences, which are irrelevant here.
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        # Code that is nested too deeply is a MemoryError in some versions of Python.
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []
    nodes: list[_DocstringNode] = [tree, *_classes(tree)]
    documents = (list(chain.from_iterable(map(prose, _docstrings(node)))) for node in nodes)
    return [sentences for sentences in documents if sentences]


def _docstrings(node: _DocstringNode) -> Iterator[str]:
    if text := ast.get_docstring(node):
        yield text
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings(child)


def _classes(node: ast.AST) -> Iterator[ast.ClassDef]:
    # Visits statements only; ast.walk would visit every expression.
    for child in getattr(node, "body", ()):
        if isinstance(child, ast.ClassDef):
            yield child
        yield from _classes(child)


def _extract_all(paths: list[Path], workers: int) -> Iterator[tuple[Path, list[list[str]]]]:
    if workers <= 1:
        yield from zip(paths, map(_extract_file, paths), strict=True)
        return
    batches = [paths[start : start + _FILES_PER_TASK] for start in range(0, len(paths), _FILES_PER_TASK)]
    yield from zip(paths, chain.from_iterable(map_in_order(_extract_files, batches, workers)), strict=True)


def _extract_files(paths: list[Path]) -> list[list[list[str]]]:
    return [_extract_file(path) for path in paths]


def _extract_file(path: Path) -> list[list[str]]:
    content = path.read_bytes()
    # Parsing dominates the run time, and a file without triple quotes has almost no docstrings.
    if b'"""' not in content and b"'''" not in content:
        return []
    return extract(content.decode("utf-8", "replace"))


def module_files(name: str) -> list[Path]:
    """Return the source files of a module or package, such as ``numpy.linalg``; none if it isn't installed."""
    packages = _packages()
    first, *rest = name.split(".")
    root = packages[first] if first in packages else packages[STANDARD_LIBRARY] / first
    return _source_files(root.joinpath(*rest))


def _source_files(root: Path) -> list[Path]:
    """The source files below a folder, or the file itself, with or without its suffix."""
    if not root.is_dir():
        return [path for path in (root, root.with_suffix(".py")) if path.is_file()][:1]
    return [
        path for path in sorted(root.rglob("*.py")) if not _SKIPPED_FOLDERS.intersection(path.relative_to(root).parts)
    ]


def _files(specification: str) -> list[Path]:
    packages = _packages()
    _, _, chosen = specification.partition(":")
    names = chosen.split(",") if chosen else [STANDARD_LIBRARY, *sorted(set(packages) - {STANDARD_LIBRARY})]
    files: list[Path] = []
    for name in names:
        if name not in packages:
            raise unknown("package", name, packages)
        files += _source_files(packages[name])
    return files


def _packages() -> dict[str, Path]:
    """Return the installed packages by import name; of two with the same name, the one that an import finds."""
    packages = {STANDARD_LIBRARY: Path(sysconfig.get_path("stdlib"))}
    # A virtual environment can include the packages of its base environment.
    installed = [path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")]
    for folder in filter(Path.is_dir, installed):
        for path in sorted(folder.iterdir()):
            if path.suffix == ".py" or (path / "__init__.py").is_file():
                packages.setdefault(path.stem, path)
    return packages


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
        for name, docstring in _docstrings_below(_parse(path), ""):
            yield f"{path.name}:{name}", docstring


def _parse(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        # Old modules contain invalid escape sequences, which are irrelevant here.
        warnings.simplefilter("ignore")
        return ast.parse(path.read_bytes())


def _docstrings_below(node: _DocstringNode, name: str) -> Iterator[tuple[str, str]]:
    if text := ast.get_docstring(node):
        yield name, text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstrings_below(child, f"{name}.{child.name}".lstrip("."))
