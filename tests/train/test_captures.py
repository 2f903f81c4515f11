"""Steps are captured where that is possible; elsewhere they stay eager, with one sentence and the same weights.

CUDA is replaced by `fake_cuda`; `test_cuda_graph.py` has the tests that need a GPU.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import install, make_replayable
from tiny_runs import recipe_of

from lightbert.data.shards import Shards
from lightbert.train import pretraining
from lightbert.train.corpus_run import make_loader
from lightbert.train.cuda_graph import WARMUP_STEPS, CudaGraphStep, uses_cuda_graph
from lightbert.train.distributed import World
from lightbert.train.optim import Optimizers
from lightbert.train.pretraining import make_objective
from lightbert.train.step import Step

WORLD = World(0, 1, torch.device("cpu"))
STEPS = WARMUP_STEPS + 3


@pytest.fixture
def cuda(monkeypatch):
    return install(monkeypatch)


def trained(corpus, kind, change=lambda objective: None, optimizer="adamw"):
    """Train for a few steps; return the step and the weights."""
    flat = optimizer == "flat"
    recipe = recipe_of(corpus, corpus / "unused", optimizer={"kind": "adamw" if flat else optimizer})
    shards = Shards(corpus / "data")
    objective = make_objective(recipe, shards)
    change(objective)
    optimizers = Optimizers(objective, recipe.optimizer, flat=flat)
    optimizers.set_rate(1e-3)
    step = kind(objective, optimizers, WORLD)
    loader = make_loader(recipe, WORLD, shards, 0, recipe.batch, recipe.length)
    for number in range(STEPS):
        torch.manual_seed(number)
        step(loader.at(number))
    return step, {name: value.clone() for name, value in objective.state_dict().items()}


def assert_same_weights(weights, expected):
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        assert torch.equal(value, expected[name]), name


def waiting(cuda, *, seen):
    """Return a change that makes the discriminator wait for the GPU; ``seen`` by the debug mode, or not."""

    def change(objective):
        def hook(*_):
            if seen or cuda.capturing:
                cuda.wait()

        objective.discriminator.register_forward_pre_hook(hook)

    return change


@pytest.mark.parametrize("optimizer", ["adamw", "flat", "lamb", "muon"])
def test_captured_steps_train_like_plain_ones(corpus, cuda, optimizer, monkeypatch, capsys):
    _, expected = trained(corpus, Step, optimizer=optimizer)
    kinds = make_replayable(monkeypatch)
    _, weights = trained(corpus, CudaGraphStep, optimizer=optimizer)
    assert_same_weights(weights, expected)
    assert kinds == ["eager"] * WARMUP_STEPS + ["replayed"] * 3
    assert capsys.readouterr().err == ""


def test_a_step_is_captured_again_if_the_layout_of_the_optimizer_changes(corpus, cuda, monkeypatch):
    kinds = make_replayable(monkeypatch)
    step, _ = trained(corpus, CudaGraphStep, optimizer="flat")
    kinds.clear()
    recipe = recipe_of(corpus, corpus / "unused")
    batch = make_loader(recipe, WORLD, Shards(corpus / "data"), 0, recipe.batch, recipe.length).at(0)
    step(batch)
    step.optimizers.flat.layout += 1
    for _ in range(WARMUP_STEPS + 1):
        step(batch)
    assert kinds == ["replayed"] + ["eager"] * WARMUP_STEPS + ["replayed"]


def test_a_failed_capture_leaves_eager_steps_with_the_same_weights(corpus, cuda, capsys):
    _, expected = trained(corpus, Step)
    step, weights = trained(corpus, CudaGraphStep, waiting(cuda, seen=False))
    assert_same_weights(weights, expected)
    assert capsys.readouterr().err == (
        "steps run without CUDA graphs, because capturing failed: operation not permitted when stream is capturing\n"
    )
    assert cuda.stream == "main"
    assert cuda.calls == [
        *("workspaces cleared", "pool ended", "pool released", "generator reset", "workspaces cleared"),
        "cache emptied",
    ]
    assert all(parameter.grad is None for parameter in step.objective.parameters())


def test_a_pool_that_was_ended_before_the_failure_is_not_released_twice(corpus, cuda, monkeypatch):
    def already_ended(*_):
        raise RuntimeError("not currently recording to mempool_id")

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", already_ended, raising=False)
    trained(corpus, CudaGraphStep, waiting(cuda, seen=False))
    assert "pool released" not in cuda.calls


def test_a_step_that_waits_for_the_gpu_is_not_captured(corpus, cuda, capsys):
    _, expected = trained(corpus, Step)
    _, weights = trained(corpus, CudaGraphStep, waiting(cuda, seen=True))
    assert_same_weights(weights, expected)
    message = capsys.readouterr().err
    assert message.startswith("steps run without CUDA graphs, because the step waits for the GPU at test_captures.py:")
    assert message.count("\n") == 1
    assert "pool ended" not in cuda.calls


def test_other_errors_of_a_capture_are_raised(corpus, cuda):
    def change(objective):
        def hook(*_):
            if cuda.capturing:
                raise ValueError("a bug")

        objective.discriminator.register_forward_pre_hook(hook)

    with pytest.raises(ValueError, match="a bug"):
        trained(corpus, CudaGraphStep, change)


def test_cuda_graphs_require_a_single_process(capsys):
    for wanted, rank, size, device, used, warns in (
        ("auto", 0, 1, "cuda", True, False),
        ("auto", 0, 1, "cpu", False, False),
        ("auto", 0, 2, "cuda:0", False, False),
        (True, 0, 1, "cuda", True, False),
        (False, 0, 1, "cuda", False, False),
        (True, 0, 1, "cpu", False, False),
        (True, 0, 2, "cuda:0", False, True),
        (True, 1, 2, "cuda:1", False, False),
        (True, 0, 2, "cpu", False, False),
    ):
        case = (wanted, rank, size, device)
        assert uses_cuda_graph(wanted, World(rank, size, torch.device(device))) is used, case
        warning = "warning: cuda_graph=true requires a single process; steps run without CUDA graphs\n"
        assert capsys.readouterr().err == (warning if warns else ""), case


def test_a_second_stream_requires_a_single_process_on_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(pretraining, "SideStream", lambda device: "a stream")
    for size, device, changes, used, warns in (
        (1, "cuda", {}, True, False),
        (1, "cuda", {"overlap": True}, True, False),
        (1, "cuda", {"overlap": False}, False, False),
        (1, "cuda", {"compile": "whole"}, False, False),
        (2, "cuda", {}, False, False),
        (2, "cuda", {"overlap": True}, False, True),
        (1, "cpu", {"overlap": True}, False, False),
    ):
        objective = SimpleNamespace(generator_stream=None)
        recipe = recipe_of(Path("corpus"), Path("out"), **changes)
        pretraining._overlap(objective, recipe, World(0, size, torch.device(device)))
        assert objective.generator_stream == ("a stream" if used else None), (size, device, changes)
        warning = "warning: overlap=true requires a single process; the backward passes run one by one\n"
        assert capsys.readouterr().err == (warning if warns else "")
