"""metrics.jsonl is readable while a run trains, and the bar shows held-out metrics."""

from pathlib import Path
from unittest import mock

import pytest
from tiny_runs import recipe_of, records, train

from lightbert.train.log import headline
from lightbert.train.loop import Loop


@pytest.mark.parametrize(("log_every", "expected"), [(1, [0, 1, 2, 3]), (2, [0, 0, 2, 2]), (0, [0, 0, 0, 0])])
def test_the_log_has_the_steps_up_to_the_last_multiple_of_log_every(
    corpus: Path, tmp_path: Path, log_every: int, expected: list[int]
) -> None:
    seen, train_on = [], Loop._train_on

    def looking(loop: Loop, *arguments: object) -> None:
        seen.append(len(records(tmp_path)))
        train_on(loop, *arguments)

    with mock.patch.object(Loop, "_train_on", looking):
        train(recipe_of(corpus, tmp_path, steps=4, log_every=log_every, checkpoint_every=0, evaluate_every=0))
    assert seen == expected
    assert len(records(tmp_path)) == 4


def test_the_first_held_out_metric_is_shown_with_losses_and_accuracies() -> None:
    assert headline({"micro_f1": 0.5, "macro_f1": 0.25, "accuracy": 0.75}) == "micro_f1 0.5 accuracy 0.75"
    assert headline({"pearson": 0.5, "mse": 2.0}) == "pearson 0.5"


def test_the_bar_shows_held_out_metrics(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = train(recipe_of(corpus, tmp_path))
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"held-out loss {outcome.held_out['loss']:.4g} " in last
    assert f" rtd_accuracy {outcome.held_out['rtd_accuracy']:.4g}" in last
