"""`lightbert demo`: from text to a trained encoder in a few minutes on a CPU."""

import math
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.demo_report import SHOWN, DemoReport
from lightbert.commands.report import AsJson, show
from lightbert.errors import InputError
from lightbert.files import is_empty

if TYPE_CHECKING:
    from lightbert.analysis.suspicion import Detector, Word
    from lightbert.commands.finetune import FinetuningReport
    from lightbert.commands.training_report import TrainingReport
    from lightbert.data.shards import Shards
    from lightbert.files import FolderKind

SOURCE = "docstrings:stdlib,numpy"
"""English text that is available on every machine and quick to read."""
VOCAB_SIZE = 2048
RECIPE: dict[str, Any] = {
    "model": "convbert-tiny",
    "change": {"depth": 2, "inner": 256, "activation": "relu"},
    "generator": 0.125,
    # Samples at temperature 1 take tens of millions of tokens to detect, these about one million.
    "temperature": 8.0,
    "batch": 16,
    "length": 64,
    "lr": 1e-3,
    "dropout": 0.0,
    "schedule": {"warmup": 0.1},
    "optimizer": {"beta2": 0.98, "bias_correction": True},
    "checkpoint_every": 100,
    "evaluate_every": 100,
    "evaluate_batches": 12,
    # More threads slow down a model this small.
    "threads": 1,
    # On a GPU, compilation would take a third of the time.
    "compile": "none",
}
"""Tuned for a few minutes on two CPU cores."""

_SENTENCES = 200
_WORDS = range(6, 13)
PACKAGES = "packages"
"""The folder of the fine-tuning, below that of the demo."""
_FILES = ("metrics.jsonl", "recipe.json", "result.json", "loss.png", "words.svg")


@dataclass(frozen=True)
class Config:
    """The options of the command, and the text to train on."""

    out: Path = Path("runs/demo")
    minutes: float = 3.0
    again: bool = False
    source: str = ""
    """A source of `lightbert prepare`; empty means the documentation of installed packages."""
    device: str = "auto"
    finetune: bool = False
    """Whether to fine-tune the bundled model at the end, and compare it with simpler classifiers."""

    def __post_init__(self) -> None:
        # Before the text is prepared; as a key of the recipe, 0 would mean no limit.
        if not 0 < self.minutes < math.inf:
            raise InputError(f"--minutes must be > 0 and finite, got {self.minutes}")


def run(config: Config) -> "DemoReport | TrainingReport | FinetuningReport":
    """Prepare text, pre-train, evaluate and fine-tune; what an earlier call has trained is only evaluated.

    Returns the report of the training if it was interrupted.
    """
    from lightbert.commands import pretrain
    from lightbert.config import from_mapping
    from lightbert.data.preparation import Settings, prepare
    from lightbert.train.settings import Recipe

    out, data = config.out, config.out / "data"
    if config.again:
        clear(out)
    trained_before = (out / "final").is_dir()
    if not trained_before:
        prepare(Settings(sources=(config.source or SOURCE,), vocab_size=VOCAB_SIZE, held_out=0.04), data)
        own = {"data": str(data), "out": str(out), "max_minutes": config.minutes, "device": config.device}
        trained = pretrain.run(from_mapping(Recipe, {**RECIPE, **own}), command=("lightbert", "demo"))
        if not trained.outcome.finished:
            return trained
    report = examine(out, trained_before=trained_before)
    draw_words(report)
    return _with_comparison(report, config.device) if config.finetune else report


def _with_comparison(report: DemoReport, device: str) -> "DemoReport | FinetuningReport":
    from lightbert import bundled
    from lightbert.commands.demo_comparison import BUNDLED, Comparison, compare

    try:
        bundled.folder_of(BUNDLED)
    except InputError as error:
        return replace(report, skipped=f"fine-tuning was skipped: {error}")
    print(f"fine-tuning the tiny model, then the first layer of {BUNDLED}, for a minute or two", file=sys.stderr)
    compared = compare(report.out / PACKAGES, report.out / "final", device)
    return replace(report, comparison=compared) if isinstance(compared, Comparison) else compared


def examine(out: Path, *, trained_before: bool = False) -> DemoReport:
    """Evaluate a finished run: its last held-out metrics, and the detection of replaced words in held-out sentences."""
    from lightbert.analysis.suspicion import Detector, corrupt, score_corrupted
    from lightbert.data.shards import Shards
    from lightbert.models import folder
    from lightbert.train import log

    held_out = Shards(out / "data", "held-out")
    detector = Detector(folder.load(out / "final"))
    last = log.read(out / "metrics.jsonl", "held-out")[-1]
    training = Shards(out / "data")
    return DemoReport(
        out=out,
        parameters=sum(parameter.numel() for parameter in detector.model.parameters()),
        documents=training.n_documents,
        tokens=training.n_tokens,
        vocab=training.vocab,
        step=last["step"],
        held_out={name: value for name, value in last.items() if name not in ("kind", "step")},
        sentences=tuple(score_corrupted(detector, corrupt(_choose(detector, held_out)))),
        trained_before=trained_before,
    )


def draw_words(report: DemoReport) -> None:
    """Write ``words.svg``, the sentences that the report prints, or print why it can't be written."""
    from lightbert.analysis.figure import write
    from lightbert.analysis.suspicion import plot_suspicion

    title = f"probability in % that a word was replaced, after {report.step:,} steps; the replaced word is framed"
    try:
        write(plot_suspicion(report.sentences[:SHOWN], title), report.out / "words.svg")
    except InputError as error:
        print(f"words.svg was not written: {error}", file=sys.stderr)


def _choose(detector: "Detector", shards: "Shards") -> "list[tuple[Word, ...]]":
    """Choose sentences at random that fit on a line and consist mostly of words."""
    documents = map(shards.document, range(shards.n_documents))
    sentences = [detector.words(sentence.tolist()) for document in documents for sentence in document.sentences]
    readable = [
        words
        for words in sentences
        if len(words) in _WORDS and sum(word.text.isalpha() for word in words) > len(words) // 2
    ]
    random.Random(0).shuffle(readable)
    return readable[:_SENTENCES]


def clear(out: Path) -> None:
    """Remove the files that a demo wrote, and no others."""
    from lightbert.commands.demo_comparison import RECIPES
    from lightbert.commands.demo_sentences import SPLITS
    from lightbert.data.staging import PREPARED, STAGING

    packages = out / PACKAGES
    for run in RECIPES:
        _clear_run(packages / run, {})
    for path in [*(packages / f"{split}.csv" for split in SPLITS)]:
        path.unlink(missing_ok=True)
    for folder in (*(packages / run for run in RECIPES), packages):
        if is_empty(folder):
            folder.rmdir()
    _clear_run(out, {"data": PREPARED, "data.partial": STAGING})


def _clear_run(out: Path, more: "Mapping[str, FolderKind]") -> None:
    """Remove what a run wrote, and the folders of the given kinds."""
    from lightbert.files import locked
    from lightbert.models.folder import MODEL_FOLDER
    from lightbert.train import checkpoint
    from lightbert.train.run_folder import check_run_folder

    if not out.is_dir():
        return
    with locked(out, "is training in", "wait for it, stop it, or choose another --out"):
        check_run_folder(out)
        checkpoint.remove_all(out / "checkpoints")
        for name, kind in {**more, "final": MODEL_FOLDER, "generator": MODEL_FOLDER}.items():
            kind.check(out / name)
            kind.remove(out / name)
        for name in _FILES:
            (out / name).unlink(missing_ok=True)


def command(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/demo"),
    minutes: Annotated[float, typer.Option(help="How long to train.")] = 3.0,
    again: Annotated[bool, typer.Option("--again", help="Remove the previous demo and start again.")] = False,
    finetune: Annotated[
        bool, typer.Option("--finetune", help="At the end, fine-tune a layer of the bundled model: a minute or two.")
    ] = False,
    zoo: Annotated[
        bool, typer.Option("--zoo", help="Instead, count the parameters of every model and run one of each family.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Train a small encoder from text in a few minutes on a CPU, without any download.

    Reads the documentation of the Python packages on this machine, trains a tokenizer and a small ConvBERT on it by
    replaced-token detection, and shows which words of a sentence the model detects as replaced. With --finetune it then
    fine-tunes the first layer of the bundled English model to tell which package a sentence documents, and compares it
    with the small model and with a bag of words. After an interruption, the same command resumes the training.
    """
    if zoo:
        from lightbert.commands.zoo import run as tour

        show(tour(), json=json)
        return
    from lightbert.train.signals import EXIT_CODE

    report = run(Config(out, minutes, again, finetune=finetune))
    show(report, json=json)
    if not isinstance(report, DemoReport):
        raise typer.Exit(EXIT_CODE)
