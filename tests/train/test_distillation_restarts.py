"""A distillation interrupted at any step, also between stages, resumes to the same bytes."""

import random
import shutil
import signal
from pathlib import Path

import pytest
from children import Moment, exit_code, start
from tiny_runs import assert_same_results, distillation_of, train

from lightbert.errors import InputError
from lightbert.models import folder

KILL = (signal.SIGKILL,)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    assert train(distillation_of(corpus, out)).finished
    return out


# Stages end after steps 2, 4 and 6; the run after 9.
@pytest.mark.parametrize("stop", range(1, 10))
def test_a_run_interrupted_at_any_step_resumes_exactly(
    corpus: Path, undisturbed: Path, tmp_path: Path, stop: int
) -> None:
    stopped = train(distillation_of(corpus, tmp_path), stop_after=stop)
    assert (stopped.step, stopped.finished) == (stop, False)
    assert train(distillation_of(corpus, tmp_path)).finished
    assert_same_results(tmp_path, undisturbed)


@pytest.mark.parametrize("kind", ["adamw", "lamb", "muon"])
@pytest.mark.parametrize("strategy", ["akt", "jkt", "pkt"])
def test_every_optimizer_and_strategy_resumes_exactly(corpus: Path, tmp_path: Path, kind: str, strategy: str) -> None:
    changes = {"optimizer": {"kind": kind, "bias_correction": True}, "strategy": strategy, "transfer_steps": 3}
    train(distillation_of(corpus, tmp_path / "whole", **changes))
    for stop in (1, 2, 3, 5):
        train(distillation_of(corpus, tmp_path / "parts", **changes), stop_after=stop)
    train(distillation_of(corpus, tmp_path / "parts", **changes))
    assert_same_results(tmp_path / "parts", tmp_path / "whole")


def test_learned_maps_and_dropout_resume_exactly(corpus: Path, tmp_path: Path) -> None:
    changes = {"transfer": {"maps": "linear"}, "dropout": 0.1}
    train(distillation_of(corpus, tmp_path / "whole", **changes))
    for stop in (2, 3):
        train(distillation_of(corpus, tmp_path / "parts", **changes), stop_after=stop)
    train(distillation_of(corpus, tmp_path / "parts", **changes))
    assert_same_results(tmp_path / "parts", tmp_path / "whole")


def test_a_run_survives_kills_within_and_between_stages(corpus: Path, undisturbed: Path, tmp_path: Path) -> None:
    recipe = distillation_of(corpus, tmp_path)
    moments = [Moment("step", 2, KILL), Moment("saving", 20, KILL), Moment("evaluating", 0, KILL)]
    for moment in moments:
        assert exit_code(start(recipe, moment)) == -signal.SIGKILL
    assert exit_code(start(recipe)) == 0
    assert_same_results(tmp_path, undisturbed)


@pytest.mark.prove
@pytest.mark.timeout(3000)
def test_fifty_kills_of_a_progressive_run_change_nothing(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"transfer_steps": 15, "steps": 9}
    assert exit_code(start(distillation_of(corpus, tmp_path / "undisturbed", **changes))) == 0
    choose = random.Random(0)
    most = {"step": 8, "saving": 60, "evaluating": 6, "removing": 4}
    kills = dict.fromkeys(most, 0)
    runs = 0
    while sum(kills.values()) < 50:
        recipe = distillation_of(corpus, tmp_path / f"killed-{runs}", **changes)
        finished = False
        while not finished:
            what = choose.choice(list(most))
            ended = exit_code(start(recipe, Moment(what, choose.randrange(most[what]), KILL)))
            assert ended in (0, -signal.SIGKILL)
            finished = ended == 0
            kills[what] += not finished
        assert_same_results(Path(recipe.out), tmp_path / "undisturbed")
        runs += 1
    where = ", ".join(f"{count} at {what}" for what, count in kills.items())
    with capsys.disabled():
        print(f"\npkt: {sum(kills.values())} kills ({where}) in {runs} runs: final bytes the same")


def test_a_run_with_a_checkpoint_rejects_another_strategy_or_teacher(corpus: Path, tmp_path: Path) -> None:
    train(distillation_of(corpus, tmp_path / "out"), stop_after=3)
    with pytest.raises(InputError, match="strategy = pkt, this recipe has jkt"):
        train(distillation_of(corpus, tmp_path / "out", strategy="jkt"))
    other = folder.load(corpus / "teacher")
    other.blocks[0].enter.bias.data += 1
    folder.save(other, tmp_path / "teacher")
    with pytest.raises(
        InputError, match=r"has teacher '.+/teacher', and '.+' has different weights; .* restore teacher="
    ):
        train(distillation_of(corpus, tmp_path / "out", teacher=str(tmp_path / "teacher")))


def test_a_run_resumes_after_the_teacher_has_moved(corpus: Path, undisturbed: Path, tmp_path: Path) -> None:
    train(distillation_of(corpus, tmp_path / "out"), stop_after=3)
    shutil.copytree(corpus / "teacher", tmp_path / "moved")
    assert train(distillation_of(corpus, tmp_path / "out", teacher=str(tmp_path / "moved"))).finished
    assert_same_results(tmp_path / "out", undisturbed)
