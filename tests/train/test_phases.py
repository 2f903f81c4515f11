"""Phases run one after another, and a run interrupted in any of them resumes exactly."""

import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_runs import assert_same_results, recipe_of, records, train

from lightbert.commands.options import check_corpus
from lightbert.config import to_mapping
from lightbert.data.batch import Batch
from lightbert.data.preparation import Settings, prepare
from lightbert.errors import InputError
from lightbert.models import folder
from lightbert.train.settings import Recipe
from lightbert.train.step import Step

PHASES = [{"length": 32, "steps": 4, "batch": 2, "lr": 5e-4}, {"length": 16, "steps": 3}]


def two_lengths(corpus: Path, out: Path, **changes: object) -> Recipe:
    return recipe_of(corpus, out, steps=6, phases=PHASES, **changes)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    train(two_lengths(corpus, out))
    return out


def test_a_new_phase_switches_length_batch_and_rate(corpus: Path, tmp_path: Path) -> None:
    shapes, call = [], Step.__call__

    def watched(step: Step, batch: Batch) -> torch.Tensor:
        shapes.append(tuple(batch.ids.shape))
        return call(step, batch)

    with mock.patch.object(Step, "__call__", watched):
        outcome = train(two_lengths(corpus, tmp_path))
    assert outcome.step == 13
    assert shapes == [(4, 16)] * 6 + [(2, 32)] * 4 + [(4, 16)] * 3
    assert folder.load(tmp_path / "final").config.positions == 32
    rates = [record["lr"] for record in records(tmp_path)]
    for start, end, peak in ((0, 6, 1e-3), (6, 10, 5e-4), (10, 13, 1e-3)):
        shape = [(1 - t / (end - start + 1)) * min(1, t / (end - start + 1) / 0.1) for t in range(1, end - start + 1)]
        assert rates[start:end] == pytest.approx([peak * factor for factor in shape])


def test_phases_of_the_same_length_have_different_batches(corpus: Path, tmp_path: Path) -> None:
    seen, call = [], Step.__call__

    def watched(step: Step, batch: Batch) -> torch.Tensor:
        seen.append(batch.ids.clone())
        return call(step, batch)

    with mock.patch.object(Step, "__call__", watched):
        train(recipe_of(corpus, tmp_path, steps=2, phases=[{"length": 16, "steps": 2}], evaluate_every=0))
    assert not torch.equal(seen[0], seen[2])


# In the first phase, on its last step, within the second, on its last step, within the last, on the very last step.
@pytest.mark.parametrize("stop", [2, 6, 8, 10, 11, 13])
def test_a_run_interrupted_in_any_phase_resumes_exactly(
    corpus: Path, undisturbed: Path, tmp_path: Path, stop: int
) -> None:
    stopped = train(two_lengths(corpus, tmp_path), stop_after=stop)
    assert (stopped.step, stopped.finished) == (stop, False)
    assert not (tmp_path / "final").exists()
    assert train(two_lengths(corpus, tmp_path)).finished
    assert_same_results(tmp_path, undisturbed)


def test_a_run_interrupted_repeatedly_resumes_exactly(corpus: Path, undisturbed: Path, tmp_path: Path) -> None:
    for stop in (1, 2, 5, 6, 7, 10, 12):
        train(two_lengths(corpus, tmp_path), stop_after=stop)
    train(two_lengths(corpus, tmp_path, workers=2))
    assert_same_results(tmp_path, undisturbed)


def test_a_phase_longer_than_the_models_positions_raises_an_error(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"positions = 32, but .* require 64; set length= to at most 32"):
        train(recipe_of(corpus, tmp_path, phases=[{"length": 64, "steps": 4}]))


def in_parts(corpus: Path, out: Path, **changes: object) -> Recipe:
    """A run that reads one prepared folder after another, with one schedule over all of them."""
    folders = out.parent
    phases = [
        {"length": 16, "steps": 4, "data": str(folders / "second"), "warmup": 0, "decay": 0},
        {"length": 32, "steps": 3, "batch": 2, "data": str(folders / "third"), "warmup": 0, "decay": 1},
    ]
    schedule = {"kind": "wsd", "warmup": 2, "decay": 0}
    return recipe_of(
        corpus, out, **{"steps": 5, "data": str(folders / "first"), "schedule": schedule, "phases": phases} | changes
    )


@pytest.fixture
def folders(corpus: Path, tmp_path: Path) -> Path:
    """Three prepared folders with one vocabulary."""
    documents = (corpus / "text.txt").read_text().split("\n\n")
    for number, name in enumerate(("first", "second", "third")):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents[number::3]))
        sources, tokenizer = (str(tmp_path / f"{name}.txt"),), str(corpus / "data" / "tokenizer.json")
        prepare(Settings(sources=sources, tokenizer=tokenizer, held_out=0.1), tmp_path / name, workers=1)
    return tmp_path


def test_a_run_over_several_folders_needs_only_those_of_unfinished_phases(corpus: Path, folders: Path) -> None:
    train(in_parts(corpus, folders / "whole"))
    factors = [record["lr"] / 1e-3 for record in records(folders / "whole")]
    assert factors == pytest.approx([1 / 6 / 0.4, 2 / 6 / 0.4, *[1.0] * 7, 0.75, 0.5, 0.25])

    (folders / "third").rename(folders / "later")
    train(in_parts(corpus, folders / "pieces"), stop_after=7)
    shutil.rmtree(folders / "first")
    (folders / "later").rename(folders / "third")
    train(in_parts(corpus, folders / "pieces"), stop_after=10)
    shutil.rmtree(folders / "second")
    check_corpus(str(folders / "first"), str(folders / "pieces"))
    train(in_parts(corpus, folders / "pieces"))
    assert_same_results(folders / "pieces", folders / "whole")


def test_phases_that_have_not_begun_may_change(corpus: Path, folders: Path) -> None:
    out = folders / "run"
    first, second = to_mapping(in_parts(corpus, out))["phases"]
    train(in_parts(corpus, out, phases=[first]), stop_after=7)
    with pytest.raises(InputError, match=r"has phases = \[.*'steps': 4.*, this recipe has \[.*'steps': 6"):
        train(in_parts(corpus, out, phases=[first | {"steps": 6}, second]))
    train(in_parts(corpus, out, phases=[first, second | {"lr": 1e-4}]), stop_after=9)
    # The last phase has not begun.
    assert train(in_parts(corpus, out, phases=[first, second])).step == 12
    saved = (out / "recipe.json").read_bytes()
    assert train(in_parts(corpus, out, phases=[first, second])).step == 12
    assert (out / "recipe.json").read_bytes() == saved
    for phases in ([first], [first, second, second]):
        with pytest.raises(InputError, match="has phases = "):
            train(in_parts(corpus, out, phases=phases))


def test_the_data_of_an_interrupted_phase_must_not_change(corpus: Path, folders: Path) -> None:
    train(in_parts(corpus, folders / "run"), stop_after=7)
    shutil.rmtree(folders / "second")
    (folders / "third").rename(folders / "second")
    with pytest.raises(InputError, match="the data of phase 2 has changed since the phase was started; restore"):
        train(in_parts(corpus, folders / "run"))
