"""What every test gets: the CPU, the same random numbers, one thread, and hypothesis without a clock."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from gpus import hide_gpus, interpret_kernels, skip_gpu_tests

# Before anybody imports it: its assertions are shown like those of a test.
pytest.register_assert_rewrite("tiny_runs")
settings.register_profile("lightbert", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("lightbert")
torch.set_num_threads(1)
# Child processes run in other folders, where relative paths would be others.
if given := os.environ.get("PYTHONPATH"):
    os.environ["PYTHONPATH"] = os.pathsep.join(str(Path(path).resolve()) for path in given.split(os.pathsep))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    hide_gpus(config.option.markexpr)
    interpret_kernels()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip_gpu_tests(config.option.markexpr, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the child processes of a failed test wrote to files named stderr."""
    report = yield
    if report.failed and (folder := item.funcargs.get("tmp_path")):
        report.sections += [(str(path), path.read_text(errors="replace")) for path in sorted(folder.rglob("stderr"))]
    return report


@pytest.fixture(autouse=True, scope="session")
def _cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remember hashes of files in a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTBERT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
