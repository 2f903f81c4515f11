"""The rules of docs/architecture.md; the layers are read from its table of packages."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lightbert"
PAGE = ROOT / "docs" / "architecture.md"
FILES = sorted(SOURCE.rglob("*.py"))


@functools.cache
def listed() -> dict[str, str]:
    """Path -> layer, for every row of the table of packages; a package's path ends with a slash."""
    rows = re.findall(r"^\| ([\d.]+) \| `([\w/.]+)` \| \S", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {path: layer for layer, path in rows}


@functools.cache
def layers() -> dict[str, int]:
    """Top-level module or package -> its layer."""
    return {
        name.rstrip("/").removesuffix(".py"): int(layer)
        for name, layer in listed().items()
        if name.count("/") == 0 or re.fullmatch(r"\w+/", name)
    }


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{path.relative_to(ROOT)}:{node.lineno} is a relative import; name the module in full"
            )
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def top(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_tops(path: Path) -> set[str]:
    """The top-level modules of lightbert that a file imports; the package itself is `__init__`."""
    parts = [name.split(".") for name in imports(path) if name.split(".")[0] == "lightbert"]
    return {names[1] if len(names) > 1 and names[1] in layers() else "__init__" for names in parts}


def test_imports_go_to_lower_layers_only():
    layer = layers()
    for path in FILES:
        here = top(path)
        for there in imported_tops(path) - {here}:
            both_single_files = (SOURCE / f"{here}.py").exists() and (SOURCE / f"{there}.py").exists()
            allowed = layer[there] < layer[here] or (both_single_files and layer[there] == layer[here])
            assert allowed, f"{path.relative_to(SOURCE)} [{layer[here]}] imports {there} [{layer[there]}]"


def steps(package: str) -> dict[str, int]:
    """Sub-folder of a package -> the number after the point of its layer; 0 for the files next to the sub-folders."""
    rows = {name.split("/")[1]: layer.split(".") for name, layer in listed().items() if name.startswith(f"{package}/")}
    return {name: int(layer[1]) if name else 0 for name, layer in rows.items()}


def sub_folder(path: Path) -> str:
    """The sub-folder of its package that a file is in; "" for files directly in the package."""
    parts = path.relative_to(SOURCE).parts
    return parts[1] if len(parts) > 2 else ""


@functools.cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, for everything in lightbert."""
    names = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in FILES}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


@functools.cache
def imported_files(path: Path) -> frozenset[Path]:
    """The files of lightbert that a file imports, also by their names as strings (`importlib`)."""
    strings = (node.value for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if is_string(node))
    names = {*imports(path), *(text for text in strings if text in modules())}
    files = (modules().get(name) or modules().get(name.rpartition(".")[0]) for name in names)
    return frozenset(file for file in files if file is not None and file != path)


def is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.mark.parametrize("package", ["tasks"])
def test_every_sub_folder_has_a_step_and_imports_lower_ones_only(package):
    folders = {path.parent.name for path in (SOURCE / package).glob("*/__init__.py")}
    step = steps(package)
    assert step.keys() == folders | {""}
    for path in (SOURCE / package).rglob("*.py"):
        here = sub_folder(path)
        for other in (other for other in imported_files(path) if top(other) == package):
            there = sub_folder(other)
            assert here == there or step[there] < step[here], (
                f"{path.relative_to(SOURCE)} [{step[here]}] imports {other.relative_to(SOURCE)} [{step[there]}]"
            )


@pytest.mark.parametrize("package", sorted({path.parent for path in FILES} - {SOURCE}), ids=lambda path: path.name)
def test_no_package_has_an_import_cycle(package):
    """Nodes are sub-folders and the `__init__.py` of a package."""
    edges: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        inside = (other for other in imported_files(path) if other.is_relative_to(package))
        here = path.relative_to(package).parts[0]
        edges.setdefault(here, set()).update(other.relative_to(package).parts[0] for other in inside)
    while leaves := {node for node, others in edges.items() if not others - {node}}:
        edges = {node: others - leaves for node, others in edges.items() if node not in leaves}
    assert not edges, f"these import each other in a circle: {sorted(edges)}"


def test_data_does_not_import_models():
    for path in (SOURCE / "data").rglob("*.py"):
        assert not imported_tops(path) & {"nn", "models"}, path.name


def test_transformers_is_imported_by_interop_only():
    users = {top(path) for path in FILES if any(name.split(".")[0] == "transformers" for name in imports(path))}
    assert users <= {"interop"}


def test_nothing_in_the_package_imports_benchmarks():
    assert not [path for path in FILES if any(name.split(".")[0] == "benchmarks" for name in imports(path))]


def test_triton_is_imported_by_the_kernels_only():
    users = {path.parent for path in FILES if any(name.split(".")[0] == "triton" for name in imports(path))}
    assert users == {SOURCE / "ops" / "kernels"}


def test_kernels_are_chosen_in_one_file_of_nn():
    words = ("is_plain", "can_fuse", "has_kernel", "on_gpu", "is_cuda")
    choosing = {path.name for path in (SOURCE / "nn").glob("*.py") if any(word in path.read_text() for word in words)}
    assert choosing == {"fused.py"}


def test_no_file_has_a_generic_name():
    assert not {path.stem for path in FILES} & {"utils", "util", "common", "helpers", "misc"}


def test_no_source_file_is_longer_than_six_hundred_lines():
    lengths = {path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: length for name, length in lengths.items() if length > 600}


LIMITS = {
    "files of src": (248, 210),
    "files of src below 40 lines": (25, 15),
    "lines of src": (45_551, 30_000),
    "lines of tests": (43_880, 25_000),
}
"""Today's maximum, which each change that reduces a count lowers, and the aim."""


def test_the_package_and_its_tests_grow_no_larger():
    lengths, tests = (
        {path.relative_to(folder).as_posix(): len(path.read_text().splitlines()) for path in folder.rglob("*.py")}
        for folder in (SOURCE, ROOT / "tests")
    )
    counts = {
        "files of src": len(lengths),
        "files of src below 40 lines": sum(length < 40 for length in lengths.values()),
        "lines of src": sum(lengths.values()),
        "lines of tests": sum(tests.values()),
    }
    print({**counts, "median lines of a file": (median(lengths.values()), 120)})
    folders = Counter(dict.fromkeys(layers(), 0))
    for name, length in lengths.items():
        folders[name.split("/")[0].removesuffix(".py")] += length
    largest = ", ".join(f"{name} {length}" for name, length in folders.most_common(5))
    wrong = {name: (count, *LIMITS[name]) for name, count in counts.items() if count > LIMITS[name][0]}
    assert not wrong, f"count, limit and aim: {wrong}; the largest packages: {largest}"


def test_the_table_lists_every_package_and_no_other():
    packages = {f"{path.parent.relative_to(SOURCE).as_posix()}/" for path in SOURCE.glob("*/**/__init__.py")}
    assert listed().keys() == packages | {path.name for path in SOURCE.glob("*.py")}
    assert all(
        int(layer.split(".")[0]) == layers()[name.split("/")[0].removesuffix(".py")] for name, layer in listed().items()
    )


def test_names_of_test_files_are_unique():
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, "pytest imports test files by their name alone: rename one of each"


def source_of_tests(path: Path) -> Path:
    """The folder of the source that a test file is about."""
    # pytest puts folders of tests on the path, where one called datasets would pass for the package of that name.
    parts = path.parent.relative_to(ROOT / "tests").parts
    return Path(*("datasets" if part == "task_datasets" else part for part in parts))


@pytest.mark.parametrize("package", ["data", "tasks"])
def test_the_folders_of_tests_mirror_those_of_the_source(package):
    holds_tests = {source_of_tests(path) for path in (ROOT / "tests" / package).rglob("test_*.py")}
    assert not [folder for folder in holds_tests if not (SOURCE / folder / "__init__.py").is_file()]
    sub_folders = {path.parent.relative_to(SOURCE) for path in (SOURCE / package).glob("*/__init__.py")}
    assert sub_folders <= holds_tests
