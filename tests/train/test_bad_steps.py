"""Non-finite losses: the step is skipped, its examples are logged, and too many in a row end the run."""

from pathlib import Path

import pytest
import torch
from tiny_runs import recipe_of, records, train

from lightbert.data.batch import Batch
from lightbert.data.features import Specials
from lightbert.data.loader import Loader
from lightbert.data.shards import Shards
from lightbert.errors import InputError
from lightbert.files import read_tensors
from lightbert.objectives.mlm import MaskedLanguageModelling
from lightbert.objectives.objective import Losses
from lightbert.train.checkpoint import load_newest


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Steps, counted from 0, whose losses are replaced by inf and NaN in turn."""
    steps: set[int] = set()
    forward = MaskedLanguageModelling.forward

    def sometimes_bad(objective: MaskedLanguageModelling, batch: Batch, counts: torch.Tensor) -> Losses:
        total, tally = forward(objective, batch, counts)
        step = int(batch.step)
        factor = (float("nan") if step % 2 else float("inf")) if objective.training and step in steps else 1.0
        return Losses(total * factor, tally * factor)

    monkeypatch.setattr(MaskedLanguageModelling, "forward", sometimes_bad)
    return steps


def weights(out: Path, step: int) -> dict[str, torch.Tensor]:
    return read_tensors(out / "checkpoints" / f"step-{step}" / "weights.safetensors")


def test_a_non_finite_step_is_skipped_and_its_examples_are_logged(corpus: Path, tmp_path: Path, bad: set[int]) -> None:
    bad.update((3, 4))
    recipe = recipe_of(corpus, tmp_path, objective="mlm", steps=7, checkpoint_every=1, keep=9)
    assert train(recipe).finished
    assert [record["step"] for record in records(tmp_path)] == [1, 2, 3, 6, 7]
    skipped = records(tmp_path, "skipped")
    assert [record["step"] for record in skipped] == [4, 5]
    shards = Shards(corpus / "data")
    specials = Specials.of(shards.tokenizer())
    loader = Loader(shards, recipe.builder(), batch=4, length=16, specials=specials)
    assert [record["examples"] for record in skipped] == [loader.examples(step).tolist() for step in (3, 4)]
    assert [record["loss"] for record in skipped] == [None, None]
    before, after, later = (weights(tmp_path, step) for step in (3, 5, 6))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not all(torch.equal(later[name], after[name]) for name in before)


@pytest.mark.parametrize("log_every", [1, 4, 50])
def test_more_than_five_skipped_steps_in_a_row_end_the_run_with_an_error(
    corpus: Path, tmp_path: Path, bad: set[int], log_every: int
) -> None:
    bad.update(range(4, 10))
    recipe = recipe_of(corpus, tmp_path, objective="mlm", steps=14, log_every=log_every, checkpoint_every=0)
    with pytest.raises(
        InputError, match=r"skipped 6 steps in a row before step \d+: the gradients were not finite.*metrics\.jsonl"
    ):
        train(recipe)
    assert [record["step"] for record in records(tmp_path, "skipped")][:6] == [5, 6, 7, 8, 9, 10]
    assert not (tmp_path / "final").exists()


def test_the_checkpoint_before_the_failure_is_kept_and_the_same_command_fails_again(
    corpus: Path, tmp_path: Path, bad: set[int]
) -> None:
    bad.update(range(4, 12))
    recipe = recipe_of(corpus, tmp_path, objective="mlm", steps=14, log_every=1)
    logs = []
    for _ in range(2):
        with pytest.raises(InputError, match="6 steps in a row before step 11"):
            train(recipe)
        logs.append((tmp_path / "metrics.jsonl").read_bytes())
    assert logs[0] == logs[1]
    assert load_newest(tmp_path / "checkpoints").facts["bad_in_a_row"] == 5


def test_five_skipped_steps_are_tolerated_and_a_finite_step_resets_the_count(
    corpus: Path, tmp_path: Path, bad: set[int]
) -> None:
    bad.update((1, 2, 3, 4, 5, 7, 8, 9, 10, 11))
    recipe = recipe_of(corpus, tmp_path, objective="mlm", steps=13)
    assert train(recipe).finished
    assert len(records(tmp_path, "skipped")) == 10
