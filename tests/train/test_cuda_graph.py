"""A captured step trains like an eager one, also if phases change the batch shape and return to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from tiny_runs import distillation_of, recipe_of, records, train

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
