"""The suite itself: visible devices, warnings that are errors, and packages that may be installed or missing."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from gpus import selects_gpu

ROOT = Path(__file__).parents[1]


def warn(module: str, category: type[Warning]) -> list[str]:
    """Warn like code of a module; return the output, unless the warning is an error."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.warn_explicit("this goes away", category, "somewhere.py", 1, module=module, registry={})
    return [str(each.message) for each in shown]


@pytest.mark.parametrize("category", [DeprecationWarning, PendingDeprecationWarning, FutureWarning, UserWarning])
@pytest.mark.parametrize("module", ["lightbert.nn.encoder", "test_encoder"])
def test_a_warning_that_our_code_causes_is_an_error(module: str, category: type[Warning]) -> None:
    with pytest.raises(category, match="this goes away"):
        warn(module, category)


@pytest.mark.parametrize("category", [DeprecationWarning, PendingDeprecationWarning, FutureWarning])
@pytest.mark.parametrize("module", ["torch.jit._script", "transformers.utils", "importlib._bootstrap"])
def test_a_deprecation_inside_another_package_is_shown(module: str, category: type[Warning]) -> None:
    assert warn(module, category) == ["this goes away"]


def test_what_torch_or_a_plugin_says_about_itself_is_shown():
    for module in ["torch._dynamo.variables.builder", "torch.autograd.graph", "pytest_benchmark.logger"]:
        assert warn(module, UserWarning) == ["this goes away"]


def test_a_file_that_is_left_open_is_an_error_wherever_that_is_noticed() -> None:
    with pytest.raises(ResourceWarning):
        warn("torch.nn.modules.module", ResourceWarning)


def test_tests_that_are_not_marked_gpu_see_no_gpu() -> None:
    assert not torch.cuda.is_available()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.gpu
def test_tests_that_are_marked_gpu_see_one() -> None:
    assert torch.cuda.device_count() > 0


def test_the_gpu_is_shown_to_runs_that_select_its_tests():
    for expression, selected in [
        ("", False),
        ("not prove", False),
        ("not gpu", False),
        ("gpu", True),
        ("gpu and not prove", True),
    ]:
        assert selects_gpu(expression) == selected


def test_a_plugin_that_warns_does_not_break_a_run_on_several_processes(tmp_path: Path) -> None:
    # pytest finds the plugin by its entry point, as if it were installed.
    installed = tmp_path / "pytest_stray-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest-stray\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\nstray = pytest_stray\n")
    (tmp_path / "pytest_stray.py").write_text(
        "import warnings\n"
        "import pytest\n"
        "def warn(*_): warnings.warn(pytest.PytestWarning('disabled beside xdist'))\n"
        "def pytest_configure(config): warn()\n"
        "def pytest_sessionstart(session): warn()\n"
        "def pytest_runtest_setup(item): warn()\n"
    )
    done = run_pytest(tmp_path, "-n", "1", "tests/test_errors.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "disabled beside xdist" in done.stdout


def test_what_the_child_processes_of_a_failed_test_wrote_is_shown(tmp_path: Path) -> None:
    (tmp_path / "with_our_hooks.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\nfrom conftest import pytest_runtest_makereport\n"
    )
    test = tmp_path / "test_children.py"
    test.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('code', [0, -11])\n"
        "def test_it_ends_well(tmp_path, code):\n"
        "    (tmp_path / 'child').mkdir()\n"
        "    (tmp_path / 'child' / 'stderr').write_bytes(f'ended with {code} \\xff'.encode('latin-1'))\n"
        "    assert code == 0\n"
    )
    done = run_pytest(tmp_path, "-p", "with_our_hooks", str(test))
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "ended with -11" in done.stdout
    assert "ended with 0" not in done.stdout


OPTIONAL = (
    *("transformers", "huggingface_hub", "datasets", "accelerate", "datatrove", "pyarrow", "pandas", "zstandard"),
    "openpyxl",
    *("sklearn", "scipy", "matplotlib", "onnx", "onnxscript", "onnxruntime", "executorch", "torchao", "triton"),
    *("tensorboard", "tensorflow", "fastapi", "starlette", "uvicorn", "httpx"),
)
"""What the extras install: nothing but their own tests may need it."""


def without_optional_packages(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest where no optional package can be imported."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL}))\n"
    (folder / "pytest_blocked.py").write_text(blocked)
    return run_pytest(folder, "-p", "pytest_blocked", *arguments)


def test_every_test_is_found_or_skipped_without_the_optional_packages(tmp_path: Path) -> None:
    done = without_optional_packages(tmp_path, "--collect-only", "-q")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert "tests/data/test_preparation.py" in done.stdout


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_every_test_passes_or_is_skipped_without_the_optional_packages(tmp_path: Path) -> None:
    done = without_optional_packages(tmp_path, "-m", "not prove", "-n", "2")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr


def run_pytest(plugins: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a part of the suite in a separate process, with plugins from a folder."""
    path = os.pathsep.join([str(plugins), str(ROOT / "src")])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
