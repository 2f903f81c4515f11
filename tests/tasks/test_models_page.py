"""docs/models.md matches the names and methods of models."""

import re
from pathlib import Path

from tiny_classifiers import write_tiny_model

from lightbert.interop.load import Preset, find
from lightbert.nn.inference import POOLS
from lightbert.tasks.kinds.classify import Classify

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def test_the_python_example_runs(tmp_path, monkeypatch):
    (tmp_path / "runs" / "topics").mkdir(parents=True)
    write_tiny_model(tmp_path / "runs" / "topics" / "final", Classify(("bad", "good")))
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict = {}
    exec(example, names)
    assert names["model"].encode(["some text", "another one"]).shape == (2, 16)


def test_the_first_name_of_the_table_is_a_preset():
    [name] = re.findall(r"^\| `([\w-]+)` \| a preset", PAGE, re.MULTILINE)
    assert find(name) == Preset(name)


def test_every_pool_is_explained():
    for pool in POOLS:
        assert f"`{pool}`" in PAGE
