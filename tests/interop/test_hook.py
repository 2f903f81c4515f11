"""Importing lightbert registers our models with transformers, in any order of imports, without importing it."""

import subprocess
import sys

import pytest

import lightbert
from lightbert.models import build

TWICE = "import lightbert; from lightbert.interop import hook; hook.install()"
ORDERS = {
    "lightbert first": f"{TWICE}; from transformers import AutoModelForMaskedLM",
    "transformers first": f"from transformers import AutoModelForMaskedLM; {TWICE}",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "saved"
    lightbert.save(build("convbert-tiny", heads={"mlm": {}}), path)
    return str(path)


def python(code):
    # Our own warnings are errors; what transformers and torch warn of when they are imported is their business.
    strict = f"import warnings; warnings.filterwarnings('error', module='lightbert')\n{code}"
    return subprocess.run([sys.executable, "-c", strict], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("order", ORDERS)
def test_auto_classes_find_our_folders_and_the_import_watcher_is_removed(order, folder):
    done = python(
        f"{ORDERS[order]}\n"
        f"print(type(AutoModelForMaskedLM.from_pretrained({folder!r})).__name__)\n"
        "import sys; print([type(finder).__name__ for finder in sys.meta_path])"
    )
    assert done.stdout.startswith("LightbertForMaskedLM\n"), done.stderr
    assert "_ImportWatcher" not in done.stdout


def test_importing_lightbert_imports_neither_transformers_nor_torch():
    done = python("import sys, lightbert; print([name for name in ('transformers', 'torch') if name in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_an_incompatible_version_of_transformers_can_still_be_imported():
    done = python(
        "import sys, warnings, lightbert; sys.modules['lightbert.interop.auto_config'] = None\n"
        "warnings.simplefilter('always')\n"
        "from transformers import AutoConfig; print(AutoConfig.__name__)"
    )
    assert done.stdout.strip() == "AutoConfig", done.stderr
    assert "lightbert's models are not registered with transformers' auto classes" in done.stderr
