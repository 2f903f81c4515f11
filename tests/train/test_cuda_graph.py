"""A captured step trains like an eager one, also if phases change the batch shape and return to it."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from tiny_runs import assert_same_results, distillation_of, recipe_of, records, train

from lightbert.objectives.rtd import ReplacedTokenDetection
from lightbert.train import cuda_graph, pretraining

PHASES = [{"length": 32, "steps": 8, "batch": 2}, {"length": 16, "steps": 8}]


pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("objective", "compiled"), [("rtd", "none"), ("rtd", "blocks"), ("mlm", "none")], ids=lambda value: value
)
def test_losses_equal_those_of_eager_steps(corpus: Path, tmp_path: Path, objective: str, compiled: str) -> None:
    runs = []
    for graphed in (False, True):
        out = tmp_path / str(graphed)
        train(
            recipe_of(
                corpus,
                out,
                model=str(corpus / "steady"),
                objective=objective,
                steps=8,
                phases=PHASES,
                device="cuda",
                compile=compiled,
                cuda_graph=graphed,
            )
        )
        runs.append([record["loss"] for record in records(out)])
    plain, recorded = runs
    assert len(plain) == 24
    assert recorded == pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("kind", ["lamb", "muon"])
def test_other_optimizers_are_captured_and_have_the_losses_of_eager_steps(
    corpus: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for graphed in (False, True):
        out, changes = tmp_path / str(graphed), {"optimizer": {"kind": kind}, "model": str(corpus / "steady")}
        train(recipe_of(corpus, out, **changes, steps=12, device="cuda", cuda_graph=graphed))
        runs.append([record["loss"] for record in records(out)])
    plain, captured = runs
    assert len(plain) == 12
    assert captured == pytest.approx(plain, rel=1e-2)
    assert "without CUDA graphs" not in capsys.readouterr().err


def test_captured_stages_of_a_distillation_have_the_losses_of_eager_ones(corpus: Path, tmp_path: Path) -> None:
    runs = []
    for graphed in (False, True):
        recipe = distillation_of(
            corpus, tmp_path / str(graphed), transfer_steps=18, steps=6, device="cuda", cuda_graph=graphed
        )
        train(recipe)
        runs.append([record["loss"] for record in records(tmp_path / str(graphed))])
    plain, captured = runs
    assert len(plain) == 24
    assert captured == pytest.approx(plain, rel=1e-2)


@contextmanager
def a_thread_that_pins_memory() -> Iterator[None]:
    """Pin memory like a loader whose batches grow: blocks are kept alive, so that each one is a new CUDA allocation."""
    stop, held = Event(), []

    def pin() -> None:
        while not stop.wait(0.0005) and len(held) < 4000:
            held.append(torch.empty(1 << 18, dtype=torch.uint8, pin_memory=True))

    thread = Thread(target=pin)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_capture_allows_cuda_calls_of_other_threads(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=8, phases=PHASES, device="cuda", cuda_graph=True)
    with a_thread_that_pins_memory():
        train(recipe)
    assert len(records(tmp_path)) == 24


def waiting_for_the_gpu(objective: ReplacedTokenDetection) -> ReplacedTokenDetection:
    objective.discriminator.register_forward_pre_hook(lambda module, inputs: inputs[0].sum().item() and None)
    return objective


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed before", "fails"])
def test_a_step_that_cannot_be_captured_runs_eagerly(
    corpus: Path,
    tmp_path: Path,
    noticed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make = pretraining.make_objective
    monkeypatch.setattr(pretraining, "make_objective", lambda *given: waiting_for_the_gpu(make(*given)))
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
