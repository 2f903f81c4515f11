"""Kills runs in child processes at random moments, starts them again, and compares the final bytes."""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from children import Moment, exit_code, start
from tiny_runs import assert_same_results

from lightbert.train.settings import CorpusRecipe

KILL = (signal.SIGKILL,)
_LAST = {"step": 12, "saving": 60, "evaluating": 6, "removing": 4}
"""The last moment of each kind at which a process is killed."""


def undisturbed(recipe: CorpusRecipe) -> float:
    """Run to the end and return the elapsed seconds."""
    began = time.monotonic()
    assert exit_code(start(recipe)) == 0
    return time.monotonic() - began


def kill_at_random(make: Callable[[Path], CorpusRecipe], where: Path, at_any_moment: int, least_runs: int = 2) -> str:
    """Kill runs until enough were killed at moments drawn from the clock; returns the counts of kills in words.

    make: returns the recipe of a run in a folder.
    """
    undisturbed(make(where / "undisturbed"))
    # Repeated, because the first run had to wait for the fork server, and on a GPU for compiled kernels.
    seconds = undisturbed(make(where / "again"))
    assert_same_results(where / "again", where / "undisturbed")
    choose = random.Random(0)
    kills = dict.fromkeys(("any moment", *_LAST), 0)
    runs = 0
    while kills["any moment"] < at_any_moment or runs < least_runs:
        recipe = make(where / f"killed-{runs}")
        finished = False
        while not finished:
            (what,) = choose.choices(list(kills), [6, 1, 1, 1, 1])
            if what == "any moment":
                process = start(recipe)
                process.join(choose.uniform(0, 0.8 * seconds))
                process.kill()
            else:
                process = start(recipe, Moment(what, choose.randrange(_LAST[what]), KILL))
            ended = exit_code(process)
            assert ended in (0, -signal.SIGKILL)
            finished = ended == 0
            kills[what] += not finished
        runs += 1
        assert_same_results(Path(recipe.out), where / "undisturbed")
    places = ", ".join(f"{count} at {what}" for what, count in kills.items())
    return f"{sum(kills.values())} kills ({places}) in {runs} runs: final bytes the same"
