import re
from pathlib import Path

import pytest
from tiny_tasks import write_model

from lightbert import bundled
from lightbert.bench.size import measure
from lightbert.models import preset

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([\w-]+)` \| ([\d,]+) \|", README, re.MULTILINE)


def test_the_readme_is_short():
    assert len(README.splitlines()) < 150


def test_the_python_example_runs(tmp_path, monkeypatch):
    # A stand-in, because a checkout can lack the weights.
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "bundled")
    write_model(tmp_path / "bundled" / "convbert-small-en")
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(example, {})
    assert (tmp_path / "somewhere" / "model.safetensors").exists()


@pytest.mark.parametrize(("name", "parameters"), ROWS)
def test_the_parameters_in_the_table_are_those_of_the_model(name, parameters):
    assert f"{measure(preset(name)).parameters:,}" == parameters


def test_every_link_is_an_existing_file():
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (Path(__file__).parents[1] / target).exists(), target
