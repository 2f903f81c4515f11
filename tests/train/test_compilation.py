"""Compiling block by block: teacher and student, once for all layers and stages; where compiled code is kept."""

import os
from unittest import mock

import pytest
import torch
import torch._inductor.runtime.compile_tasks  # sets a variable when it is imported
from tiny_runs import distillation_of, recipe_of, records, train, write_model
from torch import nn
from tracing import traced_only

from lightbert.data.shards import Shards
from lightbert.ops import backend
from lightbert.train.compilation import compile_objective, keep_compiled_code, run_eagerly
from lightbert.train.graph_pass import GraphPass


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


@pytest.fixture(autouse=True)
def compile_calls():
    with traced_only() as calls:
        yield calls


def graphs_of(recipe):
    """Return the number of graphs that a run compiles."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        train(recipe)
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_the_number_of_graphs_of_a_distillation_does_not_grow_with_layers_and_stages(corpus, tmp_path):
    graphs = []
    for depth in (2, 3):
        teacher = tmp_path / f"teacher-{depth}"
        sizes = {"block_width": 24, "depth": depth, "n_heads": 2, "heads": ("mlm", "nsp")}
        write_model(teacher, Shards(corpus / "data").vocab, "ib-bert-nano", **sizes)
        settings = {"teacher": str(teacher), "transfer_steps": 2 * depth, "compile": "blocks", "steps": 1}
        recipe = distillation_of(corpus, tmp_path / str(depth), **settings)
        recipe.change["depth"] = depth
        graphs.append(graphs_of(recipe))
    assert graphs[0] == graphs[1]


def test_a_block_is_compiled_once_per_model_and_length(corpus, tmp_path):
    def graphs(depth, *lengths):
        sizes = {"depth": depth, "width": 32, "narrow": 16, "inner": 32, "positions": 32}
        phases = [{"length": length, "steps": 1} for length in lengths[1:]]
        changes = {"model": "convbert-tiny", "change": sizes, "length": lengths[0], "phases": phases, "steps": 1}
        out = tmp_path / f"{depth}-{len(lengths)}"
        return graphs_of(recipe_of(corpus, out, compile="blocks", checkpoint_every=0, evaluate_every=0, **changes))

    once = graphs(1, 16)
    assert graphs(2, 16, 32, 16) == 2 * once


def test_compiled_and_eager_blocks_train_alike(corpus, tmp_path):
    steady = {"model": str(corpus / "steady"), "steps": 6}
    for make, changes in (
        (distillation_of, {}),
        # Embeddings that the generator trains.
        (recipe_of, {**steady, "shared_embeddings": "generator", "rtd_weight": 25.0}),
    ):
        losses = []
        for how in ("none", "blocks"):
            out = tmp_path / f"{make.__name__}-{how}"
            train(make(corpus, out, compile=how, **changes))
            losses.append([record["loss"] for record in records(out)])
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_teacher_is_compiled_too(corpus, tmp_path):
    compiled = []
    with mock.patch.object(nn.Module, "compile", lambda part, **how: compiled.append(part)):
        train(distillation_of(corpus, tmp_path, compile="blocks", transfer_steps=3, steps=0))
    wide = [part for part in compiled if getattr(getattr(part, "enter", None), "out_features", 0) == 24]
    assert len(wide) == 3


def test_auto_compiles_on_a_gpu_if_batches_have_few_shapes(monkeypatch):
    for device, few_shapes, triton, compiled in (
        ("cpu", True, True, False),
        ("cuda", True, True, True),
        ("cuda", False, True, False),
        ("cuda", True, False, False),
    ):
        monkeypatch.setattr(backend, "HAS_TRITON", triton)
        parts, objective = [], nn.Sequential(nn.Linear(2, 2))
        with mock.patch.object(nn.Module, "compile", lambda part, parts=parts, **how: parts.append(part)):
            compile_objective(objective, "auto", torch.device(device), few_shapes=few_shapes)
        assert parts == ([objective[0]] if compiled else []), (device, few_shapes, triton)


def test_batches_of_many_shapes_share_a_graph_and_evaluations_compile_nothing():
    for few_shapes, graphs in ((True, 4), (False, 2)):
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        objective = nn.Sequential(Double())
        compile_objective(objective, "blocks", torch.device("cpu"), few_shapes=few_shapes)
        with run_eagerly():
            objective(torch.randn(2, 2))
        assert "stats" not in torch._dynamo.utils.counters
        for width in (3, 4, 5, 6):
            objective(torch.randn(2, width, 2))
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs


def test_the_compiler_is_asked_for_deterministic_code_and_for_sums_of_gradients_in_kernels(compile_calls):
    """Otherwise it times alternatives with another order of sums."""
    from torch import _inductor

    for how, calls in (("blocks", 2), ("whole", 1)):
        compile_calls.reset_mock()
        compile_objective(nn.Sequential(Double(), Double()), how, torch.device("cpu"))
        options = [call.kwargs["options"] for call in compile_calls.call_args_list]
        assert [option["deterministic"] for option in options] == [True] * calls
        assert all(isinstance(option["post_grad_custom_post_pass"], GraphPass) for option in options)
        assert {*options[0]} <= {*_inductor.list_options()}


# The folder of compiled code

VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
ASSEMBLER = "TRITON_PTXAS_PATH"


@pytest.fixture
def environment(tmp_path, monkeypatch):
    for variable in (*VARIABLES, ASSEMBLER):
        # Set first, so that it is restored to what it was.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("LIGHTBERT_CACHE", str(tmp_path))
    return monkeypatch


def test_compiled_code_is_kept_in_the_cache_folder_unless_the_user_has_set_another(tmp_path, environment):
    keep_compiled_code()
    places = [str(tmp_path / "compiled" / name) for name in ("inductor", "triton")]
    assert [os.environ.pop(variable) for variable in VARIABLES] == places
    environment.setenv("TRITON_CACHE_DIR", "mine")
    keep_compiled_code()
    assert [os.environ.pop(variable) for variable in VARIABLES] == [places[0], "mine"]
    # Without a writable cache folder the defaults stay.
    environment.setenv("LIGHTBERT_CACHE", os.devnull)
    keep_compiled_code()
    assert not any(variable in os.environ for variable in VARIABLES)


def test_the_assembler_of_kernels_is_chosen_before_the_first_kernel(environment):
    name = "torch._inductor.runtime.compile_tasks._set_triton_ptxas_path"
    environment.setattr(name, lambda: os.environ.update(TRITON_PTXAS_PATH="of PyTorch"))
    keep_compiled_code()
    assert os.environ[ASSEMBLER] == "of PyTorch"
    os.environ[ASSEMBLER] = "of the user"
    keep_compiled_code()
    assert os.environ[ASSEMBLER] == "of the user"
