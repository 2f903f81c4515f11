import subprocess
import sys

import pytest

import lightbert


def test_importing_the_package_imports_nothing_heavy():
    program = (
        "import sys, lightbert; sys.exit(str({'torch', 'numpy', 'transformers', 'typer', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"


def test_every_public_name_exists():
    assert {*lightbert.__all__, "pretrain", "evaluate"} <= set(dir(lightbert))
    for name in lightbert.__all__:
        assert callable(getattr(lightbert, name))


def test_presets_are_the_names_that_build_accepts():
    assert "convbert-small" in lightbert.presets()


def test_a_missing_attribute_raises_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        _ = lightbert.biuld
