"""Runs in child processes that can be interrupted, killed, or distributed over several processes.

They are forked from a server that has already imported everything, so that they start quickly.
"""

import faulthandler
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch
from tiny_runs import run_by
from torch.distributed import TCPStore

from lightbert import files
from lightbert.data.batch import Batch
from lightbert.tasks.finetune import finetuning, grid
from lightbert.train import checkpoint, corpus_run
from lightbert.train.distributed import World, process_group
from lightbert.train.loop import Loop
from lightbert.train.settings import CorpusRecipe
from lightbert.train.signals import EXIT_CODE, Interruption, StoppedEarlyError, catch_signals
from lightbert.train.step import Step

# Otherwise a module that asks for a GPU when it is imported initialises CUDA in the server, which forks don't survive.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    [
        *("lightbert.train.pretraining", "lightbert.tasks.finetune.grid"),
        *("torch._dynamo", "sklearn.metrics"),
    ]
)

Work = Callable[[World, Interruption], bool]
"""The work of a child process; returns whether it finished."""
_stores: list[TCPStore] = []
"""Where distributed runs meet: a store ends with its last reference."""


@dataclass(frozen=True)
class Moment:
    """The point at which a process sends itself signals: the ``number``-th time, from 0, that it reaches ``what``.

    "saving" counts the files and folders that are synced to disk, "removing" the removals of old checkpoints, "run"
    the runs of a grid.
    """

    what: Literal["step", "evaluating", "saving", "removing", "run"]
    number: int
    signals: tuple[int, ...]

    def arrange(self) -> None:
        """Patch this process, which runs nothing else."""
        match self.what:
            case "step":
                Loop._train_on = self._before(Loop._train_on)
            case "evaluating":
                corpus_run.evaluate = self._within_evaluation(corpus_run.evaluate)
                finetuning.measure = self._before(finetuning.measure)
            case "saving":
                files._sync = self._before(files._sync)
            case "removing":
                checkpoint.shutil = SimpleNamespace(rmtree=self._before(checkpoint.shutil.rmtree))
            case "run":
                grid.finetune = self._before(grid.finetune)

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        calls = count()

        def signalling(*arguments: Any, **options: Any) -> Any:
            if next(calls) == self.number:
                for number in self.signals:
                    os.kill(os.getpid(), number)
            return function(*arguments, **options)

        return signalling

    def _within_evaluation(self, evaluate: Callable[..., Any]) -> Callable[..., Any]:
        at = self._before(lambda loader, number: loader.at(number))
        return lambda step, loader, batches, listed: evaluate(step, SimpleNamespace(at=partial(at, loader)), batches)


def _do(work: Work, out: Path, moment: Moment | None, device: str, environment: dict[str, str]) -> None:
    """The body of a child process: the work of the command, without its report."""
    os.environ.update(environment)
    # Without remembered hashes: whether a run writes them, and syncs more files, depends on the age of its data.
    os.environ["LIGHTBERT_CACHE"] = os.devnull
    with (out / "stderr").open("a") as file:
        os.dup2(file.fileno(), 2)
    faulthandler.enable()
    torch.set_num_threads(1)
    if environment:
        _log_batches(out / f"batches-{environment['RANK']}.jsonl")
    if moment is not None:
        moment.arrange()
    try:
        with catch_signals() as interrupted, process_group(device) as world:
            finished = work(world, interrupted)
    except StoppedEarlyError:
        finished = False
    sys.exit(0 if finished else EXIT_CODE)


def _train(recipe: CorpusRecipe, world: World, interrupted: Interruption) -> bool:
    return run_by(recipe, world, interrupted).finished


def _log_batches(path: Path) -> None:
    call = Step.__call__

    def writing(step: Step, batch: Batch) -> torch.Tensor:
        with path.open("a") as file:
            file.write(json.dumps([int(batch.step), batch.rows.tolist(), batch.ids.tolist()]) + "\n")
        return call(step, batch)

    Step.__call__ = writing


def start(recipe: CorpusRecipe, moment: Moment | None = None, **environment: str) -> ForkServerProcess:
    """Start a run in a child process."""
    return start_work(partial(_train, recipe), Path(recipe.out), moment, recipe.device, **environment)


def start_work(
    work: Work, out: Path, moment: Moment | None = None, device: str = "cpu", **environment: str
) -> ForkServerProcess:
    """Start work that writes to a folder in a child process."""
    out.mkdir(parents=True, exist_ok=True)
    process = _server.Process(target=_do, args=(work, out, moment, device, environment))
    process.start()
    return process


def exit_code(process: ForkServerProcess) -> int:
    """Wait for a process; a negative number is the signal that ended it."""
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def start_several(size: int, recipe: CorpusRecipe, moment: Moment | None = None) -> list[ForkServerProcess]:
    """Start a distributed run; ``moment`` applies to the main process."""
    # As with torchrun, the processes meet at a store that is there before them: a port that is only looked up for them
    # can be taken by the time they use it.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": store.host,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    _stores.append(store)
    return [
        start(recipe, None if rank else moment, RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in range(size)
    ]
