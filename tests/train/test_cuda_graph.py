"""A captured step trains like an eager one, also if phases change the batch shape and return to it; on a GPU."""

from contextlib import contextmanager, nullcontext
from threading import Event, Thread

import pytest
import torch
from tiny_runs import assert_same_results, distillation_of, recipe_of, records, train

from lightbert.train import cuda_graph, pretraining

PHASES = [{"length": 32, "steps": 8, "batch": 2}, {"length": 16, "steps": 8}]

pytestmark = pytest.mark.gpu

STEADY = {"steps": 8, "phases": PHASES}
CASES = {
    "rtd": (recipe_of, STEADY),
    "rtd, compiled": (recipe_of, STEADY | {"compile": "blocks"}),
    "mlm": (recipe_of, STEADY | {"objective": "mlm"}),
    "lamb": (recipe_of, {"steps": 12, "optimizer": {"kind": "lamb"}}),
    "muon": (recipe_of, {"steps": 12, "optimizer": {"kind": "muon"}}),
    "stages of a distillation": (distillation_of, {"transfer_steps": 18, "steps": 6}),
}


@pytest.mark.parametrize("case", CASES)
def test_captured_steps_have_the_losses_of_eager_ones(corpus, tmp_path, case, capsys):
    make, changes = CASES[case]
    steady = {"model": str(corpus / "steady")} if make is recipe_of else {}
    losses = []
    for graphed in (False, True):
        out = tmp_path / str(graphed)
        train(make(corpus, out, device="cuda", cuda_graph=graphed, **steady, **changes))
        losses.append([record["loss"] for record in records(out)])
    assert len(losses[0]) == (12 if case in ("lamb", "muon") else 24)
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
    assert "without CUDA graphs" not in capsys.readouterr().err


@contextmanager
def a_thread_that_pins_memory():
    """Pin memory like a loader whose batches grow: blocks are kept alive, so that each one is a new CUDA allocation."""
    stop, held = Event(), []

    def pin():
        while not stop.wait(0.0005) and len(held) < 4000:
            held.append(torch.empty(1 << 18, dtype=torch.uint8, pin_memory=True))

    thread = Thread(target=pin)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_capture_allows_cuda_calls_of_other_threads(corpus, tmp_path):
    recipe = recipe_of(corpus, tmp_path, steps=8, phases=PHASES, device="cuda", cuda_graph=True)
    with a_thread_that_pins_memory():
        train(recipe)
    assert len(records(tmp_path)) == 24


def waiting_for_the_gpu(objective):
    objective.discriminator.register_forward_pre_hook(lambda module, inputs: inputs[0].sum().item() and None)
    return objective


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed before", "fails"])
def test_a_step_that_cannot_be_captured_runs_eagerly(corpus, tmp_path, noticed, monkeypatch, capsys):
    make = pretraining.make_objective
    monkeypatch.setattr(pretraining, "make_objective", lambda *arguments: waiting_for_the_gpu(make(*arguments)))
    if not noticed:
        monkeypatch.setattr(cuda_graph, "recorded_waits", lambda: nullcontext([]))
    # With dropout: the random numbers must be those of eager steps, too.
    for graphed in (False, True):
        train(recipe_of(corpus, tmp_path / str(graphed), phases=PHASES, device="cuda", cuda_graph=graphed))
    error = capsys.readouterr().err
    assert error.count("steps run without CUDA graphs, because ") == 3
    assert ("waits for the GPU at test_cuda_graph.py:" if noticed else "capturing failed: ") in error
    assert_same_results(tmp_path / "True", tmp_path / "False")
    # The process can still capture.
    monkeypatch.setattr(pretraining, "make_objective", make)
    train(recipe_of(corpus, tmp_path / "after", steps=8, device="cuda", cuda_graph=True))
    assert "CUDA graphs" not in capsys.readouterr().err
