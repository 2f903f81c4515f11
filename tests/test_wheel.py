"""A wheel built from the tree and installed elsewhere is the whole package: it runs outside the checkout."""

import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from tiny_runs import write_corpus

from lightbert import bundled

pytest.importorskip("hatchling", reason="wheels are built with the extra 'dev'")

# This import requires hatchling.
from hatchling.builders.sdist import SdistBuilder

ROOT = Path(__file__).parents[1]
# Without this, the installed program would read the checkout.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(ROOT))
    [built] = folder.glob("lightbert-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel, and the packages of this one that it depends on."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    [packages] = folder.glob("lib/python*/site-packages")
    # A path in a .pth file is searched last, and .pth files there, such as that of an editable install, are not read.
    others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (packages / "others.pth").write_text("\n".join(others))
    return folder


def run(installed: Path, where: Path, *arguments: str) -> str:
    """Run the installed program in a folder."""
    program = [str(installed / "bin" / "lightbert"), *arguments]
    done = subprocess.run(program, cwd=where, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    source = ROOT / "src"
    files = {path.relative_to(source).as_posix() for path in (source / "lightbert").rglob("*") if path.is_file()}
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == {name for name in files if "__pycache__" not in name}
    assert {"lightbert/py.typed", "lightbert/recipes/small.toml"} <= packed


def test_a_source_distribution_holds_every_file_of_the_package(tmp_path: Path) -> None:
    built = tmp_path / next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path)))
    with tarfile.open(built) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    files = (path for path in (ROOT / "src" / "lightbert").rglob("*") if path.is_file())
    assert not {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts} - packed


def test_the_installed_program_is_not_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = [str(installed / "bin" / "python"), "-c", "import lightbert; print(lightbert.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(installed)
    assert run(installed, tmp_path, "--version").startswith("lightbert ")


def test_the_installed_program_builds_a_model(installed: Path, tmp_path: Path) -> None:
    assert json.loads(run(installed, tmp_path, "info", "convbert-small", "--json"))["preset"] == "convbert-small"


def test_the_installed_program_lists_the_bundled_models_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(run(installed, tmp_path, "info", "--json"))["bundled"]
    assert [each["name"] for each in listed] == [*bundled.installed()]


def test_the_installed_program_trains_by_a_recipe_that_it_finds_by_name(installed: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    here = tmp_path / "empty"
    here.mkdir()
    assert "tiny-rtd" in run(installed, here, "recipes")
    small = ("steps=2", "batch=2", "length=16", "evaluate_batches=1", "workers=0", "device=cpu")
    run(installed, here, "pretrain", "tiny-rtd", f"data={corpus / 'data'}", "out=run", *small)
    assert (here / "run" / "final" / "model.safetensors").is_file()


@pytest.mark.prove
def test_the_installed_program_runs_the_demo(installed: Path, tmp_path: Path) -> None:
    shown = json.loads(run(installed, tmp_path, "demo", "--minutes", "0.1", "--json"))
    assert shown["metrics"]["rtd_accuracy"] > 0
    assert (tmp_path / "runs" / "demo" / "final" / "model.safetensors").is_file()
