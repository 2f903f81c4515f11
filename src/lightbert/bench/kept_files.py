"""Files that take minutes to write, kept under names with a hash of what they depend on, so that none is outdated."""

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from lightbert.files import make_folder, sha256, write_atomic

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@contextmanager
def folder_of_files(keep: Path | None) -> Iterator[Path]:
    """Yield the folder in which files are kept, or a temporary one."""
    if keep is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        make_folder(keep)
        yield keep


def kept(folder: Path, name: str, depends_on: Sequence[Any], content: Callable[[], bytes]) -> Path:
    """Return the path of a file, after writing it if it is not there.

    depends_on: everything that the content depends on, as JSON; its hash is part of the file's name.
    """
    digest = hashlib.sha256(json.dumps(depends_on).encode()).hexdigest()[:16]
    stem, _, suffix = re.sub(r"[^\w.-]", "-", name).rpartition(".")
    path = folder / f"{stem}-{digest}.{suffix}"
    if not path.exists():
        write_atomic(path, content())
    return path


def versions(*packages: str) -> dict[str, str]:
    """The versions of packages; "" for those that are not installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = ""
    return found


def source_digests(*modules: ModuleType) -> list[str]:
    """The hashes of the source of modules."""
    return [sha256(str(module.__file__)) for module in modules]


def folder_digests(folder: Path) -> dict[str, str]:
    """File -> hash, for all files of a folder."""
    return {path.relative_to(folder).as_posix(): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def program_digest(program: "ExportedProgram") -> str:
    """The hash of a program's operators, shapes and weights, whatever the names of its parts and of its source."""
    digest = hashlib.sha256(str(program.range_constraints).encode())
    for module in program.graph_module.modules():
        for line in _lines(module.graph) if isinstance(module, fx.GraphModule) else ():
            digest.update(line.encode())
    tensors = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        tensor = tensors.get(spec.target or "")
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _lines(graph: fx.Graph) -> Iterator[str]:
    """A line for each node, in which nodes are numbers: their names change with code that computes the same."""
    numbers = {node: f"%{number}" for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        # The others have names instead.
        target = f"{node.target.__module__}.{node.target.__name__}" if callable(node.target) else node.op
        arguments = fx.map_arg((node.args, node.kwargs), lambda each: numbers[each])
        yield f"{numbers[node]} {target} {arguments} {node.meta.get('val')}\n"
