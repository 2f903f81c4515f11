"""What adapting the bundled model to a domain gains: `python -m benchmarks.adaptation --out …`.

Reads docstrings of installed packages as a task and as text, continues the pre-training of the bundled model on the
text with the recipe `adapt`, fine-tunes both weights on the task with several seeds, and writes a page. The exit code
is 75 after SIGTERM or SIGINT; the same command continues.
"""

import argparse
import csv
import io
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.pages import check_page, run_main, versions
from benchmarks.runs import Run, published, read_object, run_chains
from lightbert.commands import demo_task
from lightbert.config import assignments, from_mapping, override
from lightbert.data.docstrings import docstrings_by_name
from lightbert.data.sentences import hashed_order, hashed_part, prose
from lightbert.errors import InputError
from lightbert.files import make_folder, write_atomic
from lightbert.recipes import read
from lightbert.tasks.example import Example
from lightbert.tasks.finetune.recipe import FinetuneRecipe
from lightbert.train.settings import Recipe
from lightbert.train.signals import EXIT_CODE, catch_signals

MODEL = "convbert-small-en"
BUNDLED, ADAPTED = "bundled", "adapted"
FINETUNING = (
    *("head.pool=mean-max", "head.init=random", "change.depth=12", "length=64", "batch=16", "epochs=5"),
    *("lr=3e-4", "layer_decay=0.8", "words=false", "threads=1"),
)
"""The keys of fine-tuning, chosen on the dev split with the bundled weights."""


DESCRIPTION = "description"
"""What is above the first heading."""
SECTIONS = {
    "Parameters": "parameters",
    "Other Parameters": "parameters",
    "Attributes": "attributes",
    "Returns": "returns",
    "Yields": "returns",
    "Raises": "raises",
    "Warns": "raises",
    "Notes": "notes",
    "Examples": "examples",
}
"""Heading -> the kind of its section. Others, such as references, hardly have sentences of their own."""
_FIELDS = {"parameters", "attributes", "returns", "raises"}
"""Sections of definitions: a name or a type, and below it indented text."""
_RULE = re.compile(r"[-=]{3,}\s*")


def sentences_by_section(docstring: str) -> list[tuple[str, str]]:
    """Return the kind of section and the sentence, for each sentence of a docstring with sections; else nothing.

    Headings, and the names and types of parameters, results and exceptions, are left out.
    """
    lines = docstring.splitlines()
    headings = [
        place for place, (line, below) in enumerate(pairwise(lines)) if line[:1].strip() and _RULE.fullmatch(below)
    ]
    if not any(lines[place].strip() in SECTIONS for place in headings):
        return []
    labelled = [(DESCRIPTION, sentence) for sentence in prose("\n".join(lines[: headings[0]]))]
    for place, end in pairwise([*headings, len(lines)]):
        if kind := SECTIONS.get(lines[place].strip()):
            body = [line for line in lines[place + 2 : end] if kind not in _FIELDS or not line[:1].strip()]
            labelled += [(kind, sentence) for sentence in prose("\n".join(body))]
    return labelled


@dataclass(frozen=True)
class SectionTask:
    """Sentences with the section they come from, and documents of other functions and classes."""

    examples: dict[str, list[tuple[str, str]]]
    """Split -> sentences and their sections."""
    documents: list[list[str]]
    """The sentences of each object that has no sentence in the task."""


PACKAGES = ("matplotlib", "networkx", "numpy", "pandas", "scipy", "sklearn")
"""Packages with NumPy-style docstrings."""
SIZES = {"train": 100, "dev": 60, "test": 1300}
"""The maximum number of sentences per section: few to train on, because labels are what users have least
of, and many to test, because a gain can be small."""
TEXT = "text"
_SHARES = {TEXT: 9, "train": 3, "dev": 3, "test": 5}
"""The shares of the documented objects."""


def read_task(packages: tuple[str, ...] = PACKAGES, sizes: dict[str, int] = SIZES) -> SectionTask:
    """Read the task from the installed packages, the same on every call with the same versions.

    A function, method or class is in the text or in one split, with all of its sentences. Sentences that occur in
    several of them, or in several sections, are not in the task.
    """
    documents: list[list[str]] = []
    places: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for package in packages:
        for name, docstring in docstrings_by_name(package):
            part = hashed_part(f"{package}/{name}", _SHARES)
            sentences = prose(docstring)
            if part == TEXT and sentences:
                documents.append(sentences)
            for sentence in sentences:
                places[sentence].add((part, ""))
            for section, sentence in sentences_by_section(docstring):
                places[sentence].discard((part, ""))
                places[sentence].add((part, section))
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for sentence in sorted(places, key=hashed_order):
        if len(places[sentence]) == 1:
            [(part, section)] = places[sentence]
            found[part, section].append(sentence)
    examples = {
        split: sorted(
            (
                (sentence, section)
                for (part, section), sentences in found.items()
                if part == split and section
                for sentence in sentences[:size]
            ),
            key=lambda example: hashed_order(example[0]),
        )
        for split, size in sizes.items()
    }
    return SectionTask(examples, documents)


def write_task(task: SectionTask, folder: Path) -> dict[str, Path]:
    """Write a table per split and the text, a sentence per line; return their paths."""
    make_folder(folder)
    paths = {split: folder / f"{split}.csv" for split in task.examples}
    for split, rows in task.examples.items():
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([("text", "label"), *rows])
        write_atomic(paths[split], table.getvalue())
    paths[TEXT] = folder / f"{TEXT}.txt"
    write_atomic(paths[TEXT], "\n\n".join("\n".join(sentences) for sentences in task.documents) + "\n")
    return paths


@dataclass(frozen=True)
class Protocol:
    """Where the runs are, their seeds, and keys that are not those of the recipes."""

    out: Path
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    jobs: int = 2
    """The number of fine-tunings at once."""
    adaptation: tuple[str, ...] = ()
    finetuning: tuple[str, ...] = FINETUNING

    def path(self, name: str) -> Path:
        """The folder of a run."""
        return self.out / name

    def pretraining(self) -> list[Run]:
        """The preparation of the text, a step at a rate of nearly zero for the losses before, and the adaptation."""
        text, data = self.path("task") / f"{TEXT}.txt", self.path("data")
        prepare = ["prepare", str(text), "--out", str(data), "--tokenizer", MODEL, "--held-out", "0.04"]
        pretrain = ["pretrain", "adapt", f"data={data}", *self.adaptation]
        unchanged = [*pretrain, "steps=1", "max_minutes=0", "lr=1e-9", f"out={self.path(BUNDLED)}"]
        adapt = [*pretrain, f"out={self.path(ADAPTED)}"]
        return [self._run("data", prepare), self._run(BUNDLED, unchanged), self._run(ADAPTED, adapt)]

    def finetuning_of(self, weights: str, seed: int) -> list[Run]:
        """The fine-tuning of some weights with a seed, and its evaluation on the test split."""
        name, task = f"{weights}-{seed}", self.path("task")
        model = MODEL if weights == BUNDLED else self.path(ADAPTED) / "final"
        data = (f"data.train={task / 'train.csv'}", f"data.dev={task / 'dev.csv'}")
        keys = (f"model={model}", *data, *self.finetuning, f"seed={seed}", f"out={self.path(name)}")
        test = ["evaluate", f"{self.path(name) / 'final'}", "--data", f"{task / 'test.csv'}"]
        test += ["--out", f"{self.path(name) / 'test'}"]
        return [self._run(name, ["finetune", "classify", *keys]), self._run(f"{name}-test", test)]

    def finetunings(self) -> list[list[Run]]:
        """Those of both weights with all seeds."""
        return [self.finetuning_of(weights, seed) for seed in self.seeds for weights in (BUNDLED, ADAPTED)]

    def _run(self, name: str, words: list[str]) -> Run:
        return Run(["lightbert", *words], self.path(name))


@dataclass(frozen=True)
class Outcome:
    """What the runs have found."""

    held_out: dict[str, dict[str, float]]
    """Weights -> the metrics of pre-training on held-out documents."""
    steps: int
    """The steps of the adaptation."""
    dev: dict[str, tuple[float, ...]]
    """Weights -> the accuracy of each seed on the dev split."""
    test: dict[str, tuple[float, ...]]
    sentence_error: float
    """The standard error of the mean gain that comes from the choice of the test sentences."""

    @property
    def gains(self) -> tuple[float, ...]:
        """The difference of the test accuracy after and before the adaptation, for each seed."""
        return tuple(after - before for before, after in zip(self.test[BUNDLED], self.test[ADAPTED], strict=True))


def mean_and_error(values: tuple[float, ...]) -> tuple[float, float]:
    """The mean of some values and its standard error; that of one value is unknown, and 0 here."""
    return fmean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def run_all(task: SectionTask, protocol: Protocol, is_over: Callable[[], bool]) -> Outcome | None:
    """Run what is not finished; return the results, or None if a command failed or was stopped."""
    write_task(task, protocol.path("task"))
    # The adaptation has all cores, as a user's has.
    finished = run_chains([protocol.pretraining()], 1, is_over)
    return _read(protocol) if finished and run_chains(protocol.finetunings(), protocol.jobs, is_over) else None


def simple_classifiers(task: SectionTask) -> dict[str, float]:
    """The test accuracy of a linear model of words, and of the most frequent section."""
    examples = {split: [Example(text, label=label) for text, label in rows] for split, rows in task.examples.items()}
    return demo_task.simple_accuracies(examples, "section")


def _read(protocol: Protocol) -> Outcome:
    def scores(file: str) -> dict[str, tuple[float, ...]]:
        return {
            weights: tuple(_accuracy(protocol.path(f"{weights}-{seed}") / file) for seed in protocol.seeds)
            for weights in (BUNDLED, ADAPTED)
        }

    results = {weights: read_object(protocol.path(weights) / "result.json") for weights in (BUNDLED, ADAPTED)}
    return Outcome(
        held_out={weights: dict(result["held_out"]) for weights, result in results.items()},
        steps=int(results[ADAPTED]["step"]),
        dev=scores("result.json"),
        test=scores("test/report.json"),
        sentence_error=mean_and_error(_gain_by_sentence(protocol))[1],
    )


def _accuracy(path: Path) -> float:
    return float(read_object(path)["metrics"]["accuracy"])


def _gain_by_sentence(protocol: Protocol) -> tuple[float, ...]:
    """The gain of every test sentence: the difference of the share of seeds that classify it correctly."""
    gains: Counter[str] = Counter()
    for weights, sign in ((BUNDLED, -1), (ADAPTED, 1)):
        for seed in protocol.seeds:
            path = protocol.path(f"{weights}-{seed}") / "test" / "predictions.jsonl"
            for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
                gains[row["text"]] += sign * (row["label"] == row["true"])
    return tuple(gain / len(protocol.seeds) for gain in gains.values())


_PROGRAM = "benchmarks.adaptation"
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}
"""Packages that are installed under another name."""


_ROWS = {BUNDLED: "as bundled", ADAPTED: "adapted"}
_LOSSES = {"mlm_loss": "MLM loss (generator)", "rtd_loss": "RTD loss", "rtd_accuracy": "RTD accuracy"}
_CLEAR = 2.0
"""The standard errors that a clear difference is away from zero."""


def markdown(
    task: SectionTask, protocol: Protocol, outcome: Outcome, baselines: dict[str, float], *, command: str, origin: str
) -> str:
    """The page. command: what wrote it; origin: the commits, the versions of the packages and the machine."""
    parts = (
        _introduction(task, command, origin),
        _losses(protocol, outcome),
        _scores(task, protocol, outcome, baselines),
    )
    return "\n".join(line for part in (*parts, _commands(protocol)) for line in part)


def _introduction(task: SectionTask, command: str, origin: str) -> Iterator[str]:
    sizes = {split: len(rows) for split, rows in task.examples.items()}
    sections = sorted({section for _, section in task.examples["train"]})
    yield "# What adapting the bundled model gains"
    yield ""
    yield f"Written by `{command}`; don't edit. {origin}"
    yield ""
    yield (
        f"The recipe [`adapt`](../pretraining.md#adapting-the-bundled-model) continues the pre-training of `{MODEL}` "
        f"on docstrings of {', '.join(PACKAGES)} ({len(task.documents):,} functions and classes). The task is to tell "
        f"which section of a docstring a sentence is from: {', '.join(sections)}; headings, and the names and types "
        f"of parameters, are removed. {sizes['train']:,} labelled sentences are for training, {sizes['dev']:,} for the "
        f"choice of the epoch, {sizes['test']:,} for the test. A function or class is in one of these parts or in the "
        "text of the adaptation, and so is each of the sentences."
    )
    yield ""


def _losses(protocol: Protocol, outcome: Outcome) -> Iterator[str]:
    yield "## Held-out text"
    keys = f", with `{published(list(protocol.adaptation))}` instead of the recipe's values" * bool(protocol.adaptation)
    yield f"After {outcome.steps:,} steps{keys}; 4 % of the documents are held out."
    yield ""
    yield f"| weights | {' | '.join(_LOSSES.values())} |"
    yield "| --- |" + " ---: |" * len(_LOSSES)
    for weights, name in _ROWS.items():
        yield f"| {name} | {' | '.join(f'{outcome.held_out[weights][key]:.4f}' for key in _LOSSES)} |"
    yield ""


def _scores(task: SectionTask, protocol: Protocol, outcome: Outcome, baselines: dict[str, float]) -> Iterator[str]:
    yield "## The task"
    yield (
        "Accuracy in percent. Both weights are fine-tuned in the same way, with settings that were chosen on the dev "
        "split with the bundled weights. The last column is the mean with its standard error over the seeds."
    )
    yield ""
    yield f"| weights | split | {' | '.join(f'seed {seed}' for seed in protocol.seeds)} | mean |"
    yield "| --- | --- |" + " ---: |" * (len(protocol.seeds) + 1)
    for split, scores in (("dev", outcome.dev), ("test", outcome.test)):
        for weights, name in _ROWS.items():
            yield _row(name, split, scores[weights])
    yield _row("difference", "test", outcome.gains, "+")
    for name, accuracy in baselines.items():
        yield f"| {name} | test |{' |' * len(protocol.seeds)} {100 * accuracy:.1f} |"
    yield ""
    mean, of_seeds = mean_and_error(outcome.gains)
    error = math.hypot(of_seeds, outcome.sentence_error)
    clear = "clear" if abs(mean) > _CLEAR * error else "not clear"
    yield (
        f"The adaptation changes the test accuracy by {100 * mean:+.1f} points. The standard error is "
        f"{100 * of_seeds:.1f} from the {len(outcome.gains)} seeds, {100 * outcome.sentence_error:.1f} from the "
        f"{len(task.examples['test']):,} sentences and {100 * error:.1f} from both: by two standard errors, the change "
        f"is {clear}."
    )
    yield ""


def _row(name: str, split: str, values: tuple[float, ...], sign: str = "") -> str:
    mean, error = mean_and_error(values)
    cells = [f"{100 * value:{sign}.1f}" for value in values]
    return f"| {name} | {split} | {' | '.join(cells)} | {100 * mean:{sign}.1f} ± {100 * error:.1f} |"


def _commands(protocol: Protocol) -> Iterator[str]:
    first = protocol.seeds[0]
    runs = [*protocol.pretraining(), *(run for weights in _ROWS for run in protocol.finetuning_of(weights, first))]
    yield "## Commands"
    yield f"For seed {first}; the others differ in the seed only. The first `pretrain` measures the losses before."
    yield ""
    yield "```"
    yield from (published(run.command) for run in runs)
    yield "```"
    yield ""


def main(arguments: list[str] | None = None) -> None:
    """Adapt, fine-tune, and write the page."""
    arguments = sys.argv[1:] if arguments is None else arguments
    chosen = _parser().parse_intermixed_args(arguments)
    if chosen.seeds < 1 or chosen.jobs < 1:
        raise InputError(f"--seeds and --jobs must be >= 1, got {chosen.seeds} and {chosen.jobs}")
    if chosen.page is not None:
        check_page("--page", chosen.page)
    # The keys of commands that run minutes or hours later.
    keys = [*chosen.overrides, f"model={MODEL}", "data=DIR", "out=DIR"]
    from_mapping(Recipe, override(read("adapt"), assignments(keys)))
    keys = [*chosen.finetuning, f"model={MODEL}", "data.train=FILE", "out=DIR"]
    from_mapping(FinetuneRecipe, override(read("classify"), assignments(keys)))
    installed = versions(*(_DISTRIBUTIONS.get(package, package) for package in PACKAGES))
    if missing := [name for name, version in installed.items() if not version]:
        raise InputError(f"the task needs {', '.join(PACKAGES)}; install {' '.join(missing)}")
    protocol = Protocol(
        chosen.out,
        tuple(range(chosen.seeds)),
        chosen.jobs,
        adaptation=tuple(chosen.overrides),
        finetuning=(*FINETUNING, *chosen.finetuning),
    )
    task = read_task()
    with catch_signals() as interrupted, interrupted.deferred():
        outcome = run_all(task, protocol, lambda: bool(interrupted))
    if outcome is None:
        print(f"not finished; run the same command again to continue; the logs are in '{chosen.out}'", file=sys.stderr)
        sys.exit(EXIT_CODE if interrupted else 1)
    packages = ", ".join(f"{name} {version}" for name, version in installed.items())
    commits = {run.commit: None for chain in (protocol.pretraining(), *protocol.finetunings()) for run in chain}
    origin = f"Commits {', '.join(commits)}; {packages}{f'; {chosen.note}' if chosen.note else ''}."
    page = chosen.page or chosen.out / "adapt.md"
    command = published(["python", "-m", _PROGRAM, *arguments])
    write_atomic(page, markdown(task, protocol, outcome, simple_classifiers(task), command=command, origin=origin))
    print(f"wrote {page}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    parser.add_argument("--page", type=Path, help="the page to write, by default OUT/adapt.md")
    parser.add_argument("--seeds", type=int, default=5, help="the number of fine-tuning seeds")
    parser.add_argument("--jobs", type=int, default=2, help="fine-tunings at once, in processes of one thread")
    parser.add_argument(
        "--finetuning", action="append", default=[], help="a key=value pair for fine-tuning; repeatable"
    )
    parser.add_argument("--note", default="", help="added to the first sentence, such as the machine")
    parser.add_argument("overrides", nargs="*", help="key=value pairs for the adaptation, such as max_minutes=60")
    return parser


if __name__ == "__main__":
    run_main(main)
