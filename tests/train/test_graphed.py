"""A recorded step trains like a plain one, also when phases change the shape of the batch and come back to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from tiny_runs import recipe_of, records, train

PHASES = [{"length": 32, "steps": 8, "batch": 2}, {"length": 16, "steps": 8}]


pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("compiled", ["none", "blocks"])
def test_losses_are_those_of_plain_steps(corpus: Path, tmp_path: Path, compiled: str) -> None:
    runs = []
    for graphed in (False, True):
        out = tmp_path / str(graphed)
        train(
            recipe_of(
                corpus,
                out,
                model=str(corpus / "steady"),
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


@contextmanager
def a_thread_that_pins_memory() -> Iterator[None]:
    """As a loader does whose batches grow: what is held cannot be given out again, so that each is asked of the GPU."""
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


def test_recording_does_not_mind_other_threads(corpus: Path, tmp_path: Path) -> None:
    recipe = recipe_of(corpus, tmp_path, steps=8, phases=PHASES, device="cuda", cuda_graph=True)
    with a_thread_that_pins_memory():
        train(recipe)
    assert len(records(tmp_path)) == 24
