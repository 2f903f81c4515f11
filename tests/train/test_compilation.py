"""Compiling block by block: teacher and student, once for all layers and stages."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_runs import distillation_of, recipe_of, records, train, write_model
from torch import nn
from tracing import traced_only

from lightbert.data.shards import Shards
from lightbert.ops import backend
from lightbert.train.compilation import compile_objective, run_eagerly
from lightbert.train.graph_pass import GraphPass


class Double(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


@pytest.fixture(autouse=True)
def compile_calls() -> Iterator[mock.Mock]:
    with traced_only() as calls:
        yield calls


def graphs_of(corpus: Path, out: Path, depth: int) -> int:
    """Return the number of graphs that a progressive run compiles."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    teacher = out.parent / f"teacher-{depth}"
    sizes = {"block_width": 24, "depth": depth, "n_heads": 2, "heads": ("mlm", "nsp")}
    write_model(teacher, Shards(corpus / "data").vocab, "ib-bert-nano", **sizes)
    recipe = distillation_of(corpus, out, teacher=str(teacher), transfer_steps=2 * depth, compile="blocks")
    recipe.change["depth"] = depth
    train(recipe)
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_the_number_of_graphs_does_not_grow_with_layers_and_stages(corpus: Path, tmp_path: Path) -> None:
    assert graphs_of(corpus, tmp_path / "six", 6) == graphs_of(corpus, tmp_path / "three", 3)


def test_compiled_and_eager_blocks_train_alike(corpus: Path, tmp_path: Path) -> None:
    losses = []
    for how in ("none", "blocks"):
        train(distillation_of(corpus, tmp_path / how, compile=how))
        losses.append([record["loss"] for record in records(tmp_path / how)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_embeddings_that_the_generator_trains_are_compiled_with_the_same_losses(corpus: Path, tmp_path: Path) -> None:
    losses = []
    for how in ("none", "blocks"):
        changes = {"model": str(corpus / "steady"), "shared_embeddings": "generator", "rtd_weight": 25.0}
        train(recipe_of(corpus, tmp_path / how, compile=how, **changes))
        losses.append([record["loss"] for record in records(tmp_path / how)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_teacher_is_compiled_too(corpus: Path, tmp_path: Path) -> None:
    compiled = []
    with mock.patch.object(nn.Module, "compile", lambda part, **how: compiled.append(part)):
        train(distillation_of(corpus, tmp_path, compile="blocks"))
    wide = [part for part in compiled if getattr(getattr(part, "enter", None), "out_features", 0) == 24]
    assert len(wide) == 3


@pytest.mark.parametrize(
    ("device", "few_shapes", "triton", "compiled"),
    [
        ("cpu", True, True, False),
        ("cuda", True, True, True),
        ("cuda", False, True, False),
        ("cuda", True, False, False),
    ],
)
def test_auto_compiles_on_a_gpu_if_batches_have_few_shapes(
    device: str, few_shapes: bool, triton: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "HAS_TRITON", triton)
    parts = []
    objective = nn.Sequential(nn.Linear(2, 2))
    with mock.patch.object(nn.Module, "compile", lambda part, **how: parts.append(part)):
        compile_objective(objective, "auto", torch.device(device), few_shapes=few_shapes)
    assert parts == ([objective[0]] if compiled else [])


@pytest.mark.parametrize(("few_shapes", "graphs"), [(True, 4), (False, 2)])
def test_batches_of_many_shapes_share_a_graph(few_shapes: bool, graphs: int) -> None:
    torch._dynamo.utils.counters.clear()
    objective = nn.Sequential(Double())
    compile_objective(objective, "blocks", torch.device("cpu"), few_shapes=few_shapes)
    for width in (3, 4, 5, 6):
        objective(torch.randn(2, width, 2))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs


def test_compiled_modules_run_eagerly_in_evaluations() -> None:
    torch._dynamo.utils.counters.clear()
    objective = nn.Sequential(Double())
    compile_objective(objective, "blocks", torch.device("cpu"))
    with run_eagerly():
        objective(torch.randn(2, 2))
    assert "stats" not in torch._dynamo.utils.counters


def graphs_of_detection(corpus: Path, out: Path, depth: int, lengths: tuple[int, ...]) -> int:
    """Return the number of graphs that replaced-token detection compiles for phases of these lengths."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    sizes = {"depth": depth, "width": 32, "narrow": 16, "inner": 32, "positions": 32}
    first, *later = lengths
    phases = [{"length": length, "steps": 1} for length in later]
    more = {"steps": 1, "phases": phases, "checkpoint_every": 0, "evaluate_every": 0}
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        train(recipe_of(corpus, out, model="convbert-tiny", change=sizes, length=first, compile="blocks", **more))
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_a_block_is_compiled_once_per_model_and_length(corpus: Path, tmp_path: Path) -> None:
    once = graphs_of_detection(corpus, tmp_path / "one", 1, (16,))
    assert graphs_of_detection(corpus, tmp_path / "three", 3, (16,)) == once
    assert graphs_of_detection(corpus, tmp_path / "longer", 3, (16, 32, 16)) == 2 * once


@pytest.mark.parametrize("how", ["blocks", "whole"])
def test_the_compiler_is_asked_for_deterministic_code_and_for_sums_of_gradients_in_kernels(
    how: str, compile_calls: mock.Mock
) -> None:
    """Otherwise it times alternatives with another order of sums."""
    from torch import _inductor

    objective = nn.Sequential(Double(), Double())
    compile_objective(objective, how, torch.device("cpu"))
    options = [call.kwargs["options"] for call in compile_calls.call_args_list]
    assert [each["deterministic"] for each in options] == [True] * (2 if how == "blocks" else 1)
    assert all(isinstance(each["post_grad_custom_post_pass"], GraphPass) for each in options)
    assert {*options[0]} <= {*_inductor.list_options()}
