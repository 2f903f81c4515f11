"""CUDA graphs are used on a GPU by a single process; several processes that ask for them get a warning."""

import json
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_runs import recipe_of, train

from lightbert.config import assignments, from_mapping
from lightbert.errors import InputError
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.train import pretraining
from lightbert.train.cuda_graph import uses_cuda_graph
from lightbert.train.distributed import World
from lightbert.train.settings import DistillRecipe, Recipe


@pytest.mark.parametrize(
    ("wanted", "rank", "size", "device", "used", "warns"),
    [
        ("auto", 0, 1, "cuda", True, False),
        ("auto", 0, 1, "cpu", False, False),
        ("auto", 0, 2, "cuda:0", False, False),
        (True, 0, 1, "cuda", True, False),
        (False, 0, 1, "cuda", False, False),
        (True, 0, 1, "cpu", False, False),
        (True, 0, 2, "cuda:0", False, True),
        (True, 1, 2, "cuda:1", False, False),
        (True, 0, 2, "cpu", False, False),
    ],
)
def test_cuda_graphs_require_a_single_process(
    wanted: bool | str, rank: int, size: int, device: str, used: bool, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert uses_cuda_graph(wanted, World(rank, size, torch.device(device))) is used
    warning = "warning: cuda_graph=true requires a single process; steps run without CUDA graphs\n"
    assert capsys.readouterr().err == (warning if warns else "")


@pytest.mark.parametrize("recipe_class", [Recipe, DistillRecipe, FinetuneRecipe])
def test_steps_are_compiled_and_captured_by_default(recipe_class: type) -> None:
    defaults = {field.name: field.default for field in fields(recipe_class)}
    assert (defaults["cuda_graph"], defaults["compile"]) == ("auto", "auto")


@pytest.mark.parametrize(("text", "value"), [("auto", "auto"), ("true", True), ("false", False)])
def test_the_key_takes_auto_true_and_false(text: str, value: object) -> None:
    given = assignments(["data=d", "out=o", "steps=1", f"cuda_graph={text}"])
    assert from_mapping(Recipe, given).cuda_graph == value


@pytest.mark.parametrize("text", ["yes", "1", "True"])
def test_another_value_is_an_error_that_lists_them(text: str) -> None:
    with pytest.raises(InputError, match=r"cuda_graph.*auto.*true.*false|did you mean 'true'"):
        from_mapping(Recipe, assignments(["data=d", "out=o", "steps=1", f"cuda_graph={text}"]))


@pytest.mark.parametrize("before", [True, False])
def test_a_run_from_before_the_default_resumes(corpus: Path, tmp_path: Path, before: bool) -> None:
    recipe = recipe_of(corpus, tmp_path)
    train(recipe, stop_after=5)
    path = tmp_path / "recipe.json"
    written = json.loads(path.read_text()) | {"cuda_graph": before, "compile": "none"}
    path.write_text(json.dumps(written))
    assert train(recipe).finished


@pytest.mark.parametrize(
    ("size", "device", "changes", "used", "warns"),
    [
        (1, "cuda", {}, True, False),
        (1, "cuda", {"overlap": True}, True, False),
        (1, "cuda", {"overlap": False}, False, False),
        (1, "cuda", {"compile": "whole"}, False, False),
        (2, "cuda", {}, False, False),
        (2, "cuda", {"overlap": True}, False, True),
        (1, "cpu", {"overlap": True}, False, False),
    ],
)
def test_a_second_stream_requires_a_single_process_on_a_gpu(
    size: int,
    device: str,
    changes: dict[str, Any],
    used: bool,
    warns: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pretraining, "SideStream", lambda device: "a stream")
    objective = SimpleNamespace(generator_stream=None)
    recipe = recipe_of(Path("corpus"), Path("out"), **changes)
    pretraining._overlap(objective, recipe, World(0, size, torch.device(device)))
    assert objective.generator_stream == ("a stream" if used else None)
    warning = "warning: overlap=true requires a single process; the backward passes run one by one\n"
    assert capsys.readouterr().err == (warning if warns else "")
