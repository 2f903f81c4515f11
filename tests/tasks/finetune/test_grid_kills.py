"""A grid killed with SIGKILL at any moment and started again gives the same models as an uninterrupted one."""

import json
import random
import signal
import time
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from children import Moment, exit_code, start_work
from tiny_tasks import SETTINGS, results, write_model, write_reviews

from extras import needs_metrics
from lightbert.config import assignments
from lightbert.recipes import read
from lightbert.tasks.finetune.grid import run_all
from lightbert.tasks.finetune.plan import plan
from lightbert.train.distributed import World
from lightbert.train.signals import Interruption

pytestmark = needs_metrics

RECIPE = "classify"
KILL = (signal.SIGKILL,)

Grid = tuple[str, ...]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    where = tmp_path_factory.mktemp("start")
    model, train = write_model(where / "model"), write_reviews(where / "train.csv", rows=30)
    data = (f"data.train={train}", "data.text=body", "data.label=topic", "data.hold_out=0.3")
    return (*SETTINGS, f"model={model}", *data, "grid.lr=[1e-3, 1e-2]")


def run_grid(overrides: Grid, everyone: World, interrupted: Interruption) -> bool:
    """Run a plan like the command, without its report."""
    runs = plan(read(RECIPE), assignments(overrides))
    return all(result.finished for _, result in run_all(runs, everyone, interrupted))


def start(grid: Grid, out: Path, moment: Moment | None = None) -> ForkServerProcess:
    return start_work(partial(run_grid, (*grid, f"out={out}")), out, moment)


def table(out: Path) -> list[dict[str, Any]]:
    """The grid's table without times and paths."""
    rows = json.loads((out / "runs.json").read_text())
    for row in rows:
        row["runs"] = [{key: run[key] for key in ("seed", "metrics", "step", "best_step")} for run in row["runs"]]
    return rows


def assert_same_results(out: Path, expected: Path) -> None:
    assert results(out) == results(expected)
    assert table(out) == table(expected)
    assert list(out.rglob(".*")) == []
    assert list(out.rglob("step-*")) == []


def test_a_grid_killed_between_two_runs_resumes_with_the_second(grid: Grid, tmp_path: Path) -> None:
    assert exit_code(start(grid, tmp_path / "whole")) == 0
    assert exit_code(start(grid, tmp_path / "killed", Moment("run", 1, KILL))) == -signal.SIGKILL
    first, second = (tmp_path / "killed" / "runs" / name for name in ("lr-0.001_seed-0", "lr-0.01_seed-0"))
    before = (first / "result.json").stat().st_mtime_ns
    assert not second.exists()
    assert exit_code(start(grid, tmp_path / "killed")) == 0
    assert (first / "result.json").stat().st_mtime_ns == before
    assert_same_results(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.prove
@pytest.mark.timeout(3000)
def test_fifty_kills_of_grids_change_nothing(grid: Grid, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = (*grid, "seeds=[0, 1]")
    assert exit_code(start(grid, tmp_path / "undisturbed")) == 0
    # Measure a second run, because the first one includes starting the fork server.
    began = time.monotonic()
    assert exit_code(start(grid, tmp_path / "again")) == 0
    seconds = time.monotonic() - began
    assert_same_results(tmp_path / "again", tmp_path / "undisturbed")
    choose = random.Random(0)
    most = {"step": 24, "saving": 120, "evaluating": 6, "removing": 6, "run": 4}
    kills = dict.fromkeys(("any moment", *most), 0)
    grids = 0
    while kills["any moment"] < 25 or sum(kills.values()) < 50:
        out, finished = tmp_path / f"killed-{grids}", False
        while not finished:
            (what,) = choose.choices(list(kills), [6, 1, 2, 1, 1, 1])
            if what == "any moment":
                process = start(grid, out)
                process.join(choose.uniform(0, 0.6 * seconds))
                process.kill()
            else:
                process = start(grid, out, Moment(what, choose.randrange(most[what]), KILL))
            ended = exit_code(process)
            assert ended in (0, -signal.SIGKILL)
            finished = ended == 0
            kills[what] += not finished
        assert_same_results(out, tmp_path / "undisturbed")
        grids += 1
    where = ", ".join(f"{count} at {what}" for what, count in kills.items())
    with capsys.disabled():
        print(f"\n{sum(kills.values())} kills ({where}) of {grids} grids of four runs: final bytes the same")
