"""Adapt the bundled model to text, fine-tune it before and after on a task of that domain, and read the results.

Every command runs in a process of its own. Finished ones are not repeated, and others resume where they stopped.
"""

import csv
import io
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

from benchmarks import commands
from benchmarks.commands import Run, WorkQueue, environment, read_object, run_command
from lightbert.commands import demo_task
from lightbert.data.docstrings import docstrings_by_name
from lightbert.data.sentences import hashed_order, hashed_part, prose
from lightbert.files import make_folder, write_atomic

MODEL = "convbert-small-en"
BUNDLED, ADAPTED = "bundled", "adapted"
FINETUNING = (
    *("head.pool=mean-max", "head.init=random", "change.depth=12", "length=64", "batch=16", "epochs=5"),
    *("lr=3e-4", "layer_decay=0.8", "words=false", "threads=1"),
)
"""The keys of fine-tuning, chosen on the dev split with the bundled weights."""


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


def pretraining_runs(protocol: Protocol) -> list[Run]:
    """The preparation of the text, a step at a rate of nearly zero for the losses before, and the adaptation."""
    text, data = protocol.path("task") / f"{TEXT}.txt", protocol.path("data")
    prepare = ["prepare", str(text), "--out", str(data), "--tokenizer", MODEL, "--held-out", "0.04"]
    pretrain = ["pretrain", "adapt", f"data={data}", *protocol.adaptation]
    unchanged = [*pretrain, "steps=1", "max_minutes=0", "lr=1e-9"]
    runs = [("data", prepare)]
    runs += [
        (name, [*words, f"out={protocol.path(name)}"]) for name, words in ((BUNDLED, unchanged), (ADAPTED, pretrain))
    ]
    return [_run(protocol, name, words) for name, words in runs]


def finetuning_runs(protocol: Protocol, weights: str, seed: int) -> list[Run]:
    """The fine-tuning of some weights with a seed, and its evaluation on the test split."""
    name = f"{weights}-{seed}"
    folder, task = protocol.path(name), protocol.path("task")
    model = MODEL if weights == BUNDLED else protocol.path(ADAPTED) / "final"
    data = (f"data.train={task / 'train.csv'}", f"data.dev={task / 'dev.csv'}")
    keys = (f"model={model}", *data, *protocol.finetuning, f"seed={seed}", f"out={folder}")
    test = ["evaluate", str(folder / "final"), "--data", str(task / "test.csv"), "--out", str(folder / "test")]
    return [_run(protocol, name, ["finetune", "classify", *keys]), _run(protocol, f"{name}-test", test)]


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


def run_all(task: SectionTask, protocol: Protocol, should_stop: Callable[[], bool]) -> Outcome | None:
    """Run what is not finished; return the results, or None if a command failed or was stopped."""
    write_task(task, protocol.path("task"))
    pretraining, *finetunings = _chains(protocol)
    # The adaptation has all cores, as a user's has.
    if not _run_chains([pretraining], 1, should_stop) or not _run_chains(finetunings, protocol.jobs, should_stop):
        return None
    return _read(protocol)


def simple_classifiers(task: SectionTask) -> dict[str, float]:
    """The test accuracy of a bag of words, tuned on the dev split, and of the most frequent section."""
    texts, labels = (
        {split: [example[place] for example in rows] for split, rows in task.examples.items()} for place in (0, 1)
    )
    words = demo_task.tune_naive_bayes(texts["train"], labels["train"], texts["dev"], labels["dev"])
    [(most_frequent, _)] = Counter(labels["train"]).most_common(1)
    return {
        "naive Bayes on words, tuned": demo_task.equal_fraction(words.predict(texts["test"]), labels["test"]),
        "the most frequent section": labels["test"].count(most_frequent) / len(labels["test"]),
    }


def commits(protocol: Protocol) -> list[str]:
    """The commits of all commands, in order."""
    records = [commands.read(run.record) for chain in _chains(protocol) for run in chain]
    return list(dict.fromkeys(each for record in records if record is not None for each in record.commits))


def _chains(protocol: Protocol) -> list[list[Run]]:
    """All commands: those of pre-training, then those of each fine-tuning."""
    pairs = [(seed, weights) for seed in protocol.seeds for weights in (BUNDLED, ADAPTED)]
    return [pretraining_runs(protocol), *(finetuning_runs(protocol, weights, seed) for seed, weights in pairs)]


def _run(protocol: Protocol, name: str, words: list[str]) -> Run:
    return Run(0, ["lightbert", *words], str(protocol.path(name)))


def _run_chains(chains: list[list[Run]], jobs: int, should_stop: Callable[[], bool]) -> bool:
    """Run chains of commands, some at once; return whether all are finished."""
    queue: WorkQueue[list[Run]] = WorkQueue(jobs, should_stop)
    results = list[bool]()

    def work(chain: list[Run]) -> bool:
        return all(_finish(run, queue.is_over, environment(jobs)) for run in chain)

    for chain in chains:
        queue.add((0,), chain)
    queue.run(work, lambda _, finished: results.append(finished))
    return len(results) == len(chains) and all(results)


def _finish(run: Run, is_over: Callable[[], bool], variables: dict[str, str]) -> bool:
    if run.is_finished:
        return True
    if is_over():
        return False
    print(" ".join(run.command), file=sys.stderr)
    commands.begin(run.record, run.command)
    code = run_command(run.command, run.log, is_over, variables)
    if code == 0:
        commands.finish(run.record)
    elif not is_over():
        print(f"lightbert {run.command[1]} failed; see {run.log}", file=sys.stderr)
    return code == 0


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
