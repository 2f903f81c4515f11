"""Records of small encoders: their pre-trainings and their scores, kept as JSON next to the page that shows them.

Run folders contain weights and are not kept; a record has what a page or a model card says about a run.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeVar

from benchmarks.runs import finetuned_runs, read_object
from lightbert.config import from_mapping, to_mapping
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.interop.load import ModelFolder, describe, find
from lightbert.models import build
from lightbert.models.convbert import ConvBert
from lightbert.models.flops import flops
from lightbert.models.presets import generator
from lightbert.models.size import Run, rtd_training
from lightbert.train.settings import DistillRecipe, Recipe

TASKS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "rte": "RTE"}
"""The tasks of the mean, with GLUE's names."""


@dataclass(frozen=True)
class Pretraining:
    """A pre-training run, a part that continues another one, or a distillation."""

    name: str
    recipe: str
    command: str
    commit: str
    machine: str
    minutes: float
    tokens: int
    """Tokens of this run, padding included."""
    flops_electra: float
    """Training FLOPs by the rules of ELECTRA's script; 0 for a distillation, which that script doesn't cover."""
    flops_matmul: float
    """Training FLOPs of matrix products and convolutions, a backward pass counted as two forward passes."""
    held_out: dict[str, float]
    after: str = ""
    """The name of the pre-training that this one continues."""
    teacher: str = ""
    """The name of the pre-training of its teacher, if it is a distillation."""
    source: str = ""
    """Where the record is quoted from; "" if it was read from a run folder."""


@dataclass(frozen=True)
class TaskScores:
    """The scores of a task, one per fine-tuning seed."""

    metric: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over the seeds."""
        return median(self.values)


@dataclass(frozen=True)
class Scores:
    """The scores of a pre-trained model on the development sets of tasks, fine-tuned with one recipe."""

    name: str
    of: str
    """The name of the pre-training."""
    recipe: str
    commands: tuple[str, ...]
    commit: str
    machine: str
    tasks: dict[str, TaskScores]
    source: str = ""
    """Where the record is quoted from; "" if it was read from run folders."""

    @property
    def mean(self) -> float | None:
        """The mean of the tasks' medians, in points; None if a task is missing."""
        if not TASKS.keys() <= self.tasks.keys():
            return None
        return 100 * fmean(self.tasks[task].median for task in TASKS)


Record = TypeVar("Record", Pretraining, Scores)


@dataclass(frozen=True)
class Records:
    """All records of a page, in the order in which they were added."""

    pretrainings: tuple[Pretraining, ...] = ()
    scores: tuple[Scores, ...] = ()

    def chain(self, name: str) -> list[Pretraining]:
        """A pre-training and all those that it continues, the first one first; the records are checked."""
        by_name = {each.name: each for each in self.pretrainings}
        found: list[Pretraining] = []
        while name:
            if by_name[name] in found:
                raise InputError(f"the pre-training '{name}' continues itself; correct its key 'after'")
            found.insert(0, by_name[name])
            name = by_name[name].after
        return found

    def check(self) -> "Records":
        """Check that all pre-trainings that are named are recorded; return the records."""
        known = {each.name for each in self.pretrainings}
        named = [(each.name, each.of) for each in self.scores]
        named += [(each.name, other) for each in self.pretrainings for other in (each.after, each.teacher) if other]
        for name, pretraining in named:
            if pretraining not in known:
                raise InputError(
                    f"'{name}' names the pre-training '{pretraining}', which is not recorded; record it first"
                )
        for each in self.pretrainings:
            self.chain(each.name)
        return self

    def tokens(self, name: str) -> int:
        """The tokens of a pre-training and of all those that it continues."""
        return sum(each.tokens for each in self.chain(name))

    def is_student(self, name: str) -> bool:
        """Whether a pre-training is a distillation."""
        return any(each.name == name and each.teacher for each in self.pretrainings)

    def find(self, name: str) -> Scores:
        """The scores of this name."""
        found = next((each for each in self.scores if each.name == name), None)
        if found is None:
            names = ", ".join(f"'{each.name}'" for each in self.scores) or "none"
            raise InputError(f"no scores named '{name}' are recorded; recorded: {names}")
        return found

    def add(self, record: Pretraining | Scores) -> "Records":
        """Return the records with one more; it replaces the one of the same name."""
        if isinstance(record, Pretraining):
            return replace(self, pretrainings=_replace(self.pretrainings, record))
        return replace(self, scores=_replace(self.scores, record))

    def with_quoted(self, quoted: "Records") -> "Records":
        """Return the records with quoted ones; a measured record takes precedence over a quoted one of its name."""
        ours, scored = ({each.name for each in kind} for kind in (self.pretrainings, self.scores))
        return Records(
            (*(each for each in quoted.pretrainings if each.name not in ours), *self.pretrainings),
            (*(each for each in quoted.scores if each.name not in scored), *self.scores),
        )


def load(path: Path) -> Records:
    """Read records from a .json or .toml file; no records if there is no file."""
    if not path.exists():
        return Records()
    try:
        text = path.read_text(encoding="utf-8")
        values: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is damaged: {error}; restore it") from error
    try:
        return from_mapping(Records, values)
    except InputError as error:
        raise InputError(f"'{path}': {error}") from None


def save(records: Records, path: Path) -> None:
    """Write records as JSON."""
    write_atomic(path, json.dumps(to_mapping(records), indent=1, ensure_ascii=False) + "\n")


def _replace(records: tuple[Record, ...], new: Record) -> tuple[Record, ...]:
    by_name = {each.name: each for each in records} | {new.name: new}
    return tuple(by_name.values())


BACKWARD = 2
"""Forward passes that a backward pass counts as, in the convention of matrix products."""


@dataclass(frozen=True)
class Origin:
    """What a run folder doesn't say."""

    name: str
    commit: str
    machine: str


def read_pretraining(folder: Path, origin: Origin, *, after: str = "", minutes: float = 0.0) -> Pretraining:
    """Read a pre-training by replaced-token detection: a run folder, or a model folder with the card of its run.

    minutes: by default those of the tokens at the speed in result.json.
    """
    model, card = _model_and_card(folder, distilled=False)
    recipe = from_mapping(Recipe, {"data": "data", "out": "out", **card.recipe})
    config = describe(_model_folder(model)).config
    if recipe.objective != "rtd" or not isinstance(config, ConvBert):
        raise InputError(f"'{folder}' must be a ConvBERT pre-trained by replaced-token detection")
    phases = [Run(each.batch, each.steps, each.length) for each in recipe.resolved_phases(0)]
    tokens = sum(run.batch * run.steps * run.length for run in phases)
    small = generator(config, recipe.generator)
    return Pretraining(
        **_facts(card, origin),
        minutes=minutes or tokens / _speed(folder) / 60,
        tokens=tokens,
        flops_electra=sum(rtd_training(config, small, run) for run in phases),
        flops_matmul=sum(_matmul_flops(config, small, recipe.masking.rate, run) for run in phases),
        after=after,
    )


def read_distillation(folder: Path, origin: Origin, *, teacher: str, minutes: float = 0.0) -> Pretraining:
    """Read a distillation in one stage: a run folder, or a model folder with the card of its run.

    teacher: the name of its teacher's pre-training. minutes: by default those of the tokens at the speed in
    result.json.
    """
    model, card = _model_and_card(folder, distilled=True)
    recipe = from_mapping(DistillRecipe, {"data": "data", "out": "out", **card.recipe})
    if recipe.strategy not in ("akt", "pd"):
        raise InputError(f"'{folder}' must be distilled in one stage (akt or pd), got strategy '{recipe.strategy}'")
    student = build(describe(_model_folder(model)).config, heads={"mlm": {}}, device="meta")
    taught_by = build(describe(_model_folder(recipe.teacher)).config, device="meta")
    trained = flops(student, recipe.length)
    trained += flops(student.heads["mlm"], round(recipe.masking.rate * recipe.length))
    tokens = recipe.batch * recipe.steps * recipe.length
    return Pretraining(
        **_facts(card, origin),
        minutes=minutes or tokens / _speed(folder) / 60,
        tokens=tokens,
        flops_electra=0.0,
        flops_matmul=((1.0 + BACKWARD) * trained + flops(taught_by, recipe.length)) * recipe.batch * recipe.steps,
        teacher=teacher,
    )


def read_scores(folders: Sequence[Path], origin: Origin, *, of: str) -> Scores:
    """Read the finished fine-tunings of one model in and below some folders."""
    runs = finetuned_runs(folders)
    if not runs:
        given = ", ".join(f"'{folder}'" for folder in folders)
        raise InputError(f"no finished fine-tuning of a named task in {given}; give run folders")
    tasks = {
        task: TaskScores(members[0].metric, tuple(run.score for run in members))
        for task, members in ((task, list(same)) for task, same in groupby(runs, key=lambda run: run.task))
    }
    cards = [_Card.read(run.folder / "final" / "README.md") for run in runs]
    return Scores(
        name=origin.name,
        of=of,
        recipe=", ".join(sorted({card.recipe_name for card in cards})),
        commands=tuple(dict.fromkeys(card.command for card in cards)),
        commit=origin.commit,
        machine=origin.machine,
        tasks=tasks,
    )


def _matmul_flops(config: ConvBert, small: ConvBert, predicted: float, run: Run) -> float:
    """Training FLOPs of both models with their heads, by matrix products and convolutions."""
    discriminator = build(config, heads={"rtd": {}}, device="meta")
    generating = build(small, heads={"mlm": {}}, device="meta")
    forward = flops(discriminator, run.length) + flops(discriminator.heads["rtd"], run.length)
    forward += flops(generating, run.length) + flops(generating.heads["mlm"], round(predicted * run.length))
    return (1.0 + BACKWARD) * forward * run.batch * run.steps


@dataclass(frozen=True)
class _Card:
    """What the model card of a run says about its training."""

    command: str
    recipe: dict[str, Any]
    metrics: dict[str, float]

    @property
    def recipe_name(self) -> str:
        """The recipe in the command: `lightbert finetune NAME …`."""
        return self.command.split()[2]

    @property
    def is_distillation(self) -> bool:
        """Whether the command is `lightbert distill …`."""
        return self.command.split()[1] == "distill"

    @classmethod
    def read(cls, path: Path) -> "_Card":
        if not path.is_file():
            raise InputError(f"'{path}' not found; give the folder of a finished run")
        text = path.read_text(encoding="utf-8").partition("\n## Training\n")[2]
        training, _, rest = text.partition("\n## Metrics\n")
        command = re.search(r"```sh\n(lightbert \w+ .*)\n```", training)
        recipe = re.search(r"```toml\n(.*?)```", training, re.DOTALL)
        if command is None or recipe is None:
            raise InputError(f"'{path}' must have the command and the recipe of a run of the command line")
        rows = re.findall(r"^\| (\w+) \| (-?[\d.]+) \|", rest.partition("\n## ")[0], re.MULTILINE)
        return cls(command[1], tomllib.loads(recipe[1]), {name: float(value) for name, value in rows})


def _model_and_card(folder: Path, *, distilled: bool) -> tuple[Path, _Card]:
    """The model folder of a run folder, or the folder itself, and its card, which must be of this kind of run."""
    model = folder / "final" if (folder / "final").is_dir() else folder
    card = _Card.read(model / "README.md")
    if card.is_distillation and not distilled:
        raise InputError(f"'{folder}' is a distillation; add --teacher and the name of its teacher's pre-training")
    if distilled and not card.is_distillation:
        raise InputError(f"'{folder}' is not a distillation; leave out --teacher")
    return model, card


def _facts(card: _Card, origin: Origin) -> dict[str, Any]:
    """What a record takes as it is from the card of a run and from its origin."""
    return {**vars(origin), "recipe": card.recipe_name, "command": card.command, "held_out": card.metrics}


def _model_folder(path: Path | str) -> ModelFolder:
    found = find(path)
    if not isinstance(found, ModelFolder):
        raise InputError(f"'{path}' must be a model folder")
    return found


def _speed(folder: Path) -> float:
    path = folder / "result.json"
    if not path.is_file():
        raise InputError(f"'{path}' not found; add --minutes, or give the folder of a finished run")
    return float(read_object(path)["tokens_per_second"])
