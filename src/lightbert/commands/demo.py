"""The report of `lightbert demo`: metrics on held-out text, and replaced words in sentences."""

import math
import random
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.report import AsJson, Table, show
from lightbert.errors import InputError
from lightbert.files import is_empty

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.analysis.suspicion import CorruptedSentence, Detector, Word
    from lightbert.commands.demo_task import Comparison
    from lightbert.commands.finetune import FinetuningReport
    from lightbert.commands.pretrain import TrainingReport
    from lightbert.data.shards import Shards
    from lightbert.files import FolderKind


SHOWN = 6
"""Number of sentences printed; the metrics are over all of them."""

# Lowest suspicion of each style. Probabilities are low, because few words of the training text are replaced.
_STYLES = ((0.6, "bold white on red"), (0.35, "bold red"), (0.2, "yellow"), (0.0, ""))


@dataclass(frozen=True)
class DemoReport:
    """A trained model and its metrics."""

    out: Path
    parameters: int
    documents: int
    tokens: int
    vocab: int
    step: int
    held_out: dict[str, float]
    sentences: "tuple[CorruptedSentence, ...]"
    trained_before: bool
    comparison: "Comparison | None" = None
    """The fine-tuned bundled model; None if it wasn't fine-tuned."""
    skipped: str = ""
    """Why it wasn't."""

    @property
    def baseline(self) -> float:
        """The accuracy of predicting "original" for every token."""
        return 1.0 - self.held_out["replaced"]

    @property
    def found(self) -> float:
        """The fraction of sentences whose replaced word has the highest suspicion."""
        return sum(sentence.rank == 1 for sentence in self.sentences) / len(self.sentences)

    @property
    def guessed(self) -> float:
        """The expected fraction for a random choice of word."""
        return sum(1 / len(sentence.words) for sentence in self.sentences) / len(self.sentences)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "out": str(self.out),
            "model": str(self.out / "final"),
            "picture": str(picture) if (picture := self._existing("loss.png")) else None,
            "parameters": self.parameters,
            "corpus": {"documents": self.documents, "tokens": self.tokens, "vocab": self.vocab},
            "step": self.step,
            "trained_before": self.trained_before,
            "metrics": {
                **self.held_out,
                "baseline_accuracy": self.baseline,
                "planted_found": self.found,
                "planted_guessed": self.guessed,
            },
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "sentences": [_plain(sentence) for sentence in self.sentences],
        }

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        before = (
            [f"{self.out} has been trained before; --again trains it from scratch", ""] if self.trained_before else []
        )
        compared = [part for part in (self.comparison, self.skipped) if part]
        after = [*compared, ""] if compared else []
        return Group(*before, self._summary(), "", self._numbers(), "", *self._words(), *after, self._next())

    def _existing(self, name: str) -> Path | None:
        """Pictures are missing where matplotlib is."""
        return self.out / name if (self.out / name).is_file() else None

    def _summary(self) -> str:
        pictures = {"loss curve": self._existing("loss.png"), "words below": self._existing("words.svg")}
        return "\n".join(
            (
                f"{self.tokens:,} tokens of {self.documents:,} documented modules and classes, {self.vocab:,} word "
                "pieces",
                f"a ConvBERT of {self.parameters / 1e6:.1f} M parameters after {self.step:,} steps: "
                f"{self.out / 'final'}",
                *(f"{name}: {path}" for name, path in pictures.items() if path),
            )
        )

    def _numbers(self) -> Table:
        accuracy, precision, recall = (self.held_out[f"rtd_{name}"] for name in ("accuracy", "precision", "recall"))
        rows = [
            ('always "original"', f"{self.baseline:.2%}", "", f"{0:.1%}"),
            ("the model", f"{accuracy:.2%}", f"{precision:.1%}", f"{recall:.1%}"),
        ]
        return Table(
            ("", "accuracy", "precision", "recall"),
            rows,
            title="Detection of the words that the generator replaced in held-out text",
            caption="The generator samples at a high temperature; plausible samples take far more text to detect.",
            bold=1,
        )

    def _words(self) -> "list[RenderableType]":
        from rich.text import Text

        lines: list[RenderableType] = [
            f"One word was replaced in each of {len(self.sentences)} held-out sentences. It has the highest "
            f"suspicion in {self.found:.0%} of them; a random choice would find {self.guessed:.0%}.",
            Text("Suspicion in percent; the replaced word is underlined:", style="dim"),
            "",
        ]
        for sentence in self.sentences[:SHOWN]:
            replacement = sentence.words[sentence.place].text
            rank = f"rank {sentence.rank} of {len(sentence.words)}"
            replaced = Text(f"{replacement} replaces {sentence.original}: {rank}", style="dim")
            lines += [_sentence(sentence), replaced, ""]
        return lines

    def _next(self) -> Table:
        rows = [*NEXT, (f"lightbert serve {shlex.quote(str(self.out / 'final'))}", "open the model in a browser")]
        if self.comparison is not None:
            model = shlex.quote(str(self.comparison.model))
            rows.append((f"lightbert serve {model}", "open the fine-tuned model in a browser"))
            predict = f"lightbert predict {model} {shlex.quote(self.comparison.sentence)}"
            rows.append((predict, "which package does it document?"))
        return Table(("", ""), rows, title="What to run next, on your own text", left=2, frame=False)


NEXT = (
    ("lightbert finetune classify model=convbert-small-en data.train=my.csv out=runs/topics", "texts with labels"),
    ("lightbert prepare 'my/*.txt' --out runs/mine/data --tokenizer convbert-small-en", "tokenize text"),
    (
        "lightbert pretrain adapt data=runs/mine/data out=runs/mine",
        "adapt that model to it, 20 minutes on a CPU",
    ),
    ("lightbert pretrain convbert-small-rtd data=… out=…", "the paper's model, on a GPU"),
    ("lightbert demo --zoo", "the sizes of all models, and a forward pass of each family"),
)


def _sentence(corrupted: "CorruptedSentence") -> "RenderableType":
    """The words, with their suspicion below."""
    from rich import table as tables
    from rich.text import Text

    table = tables.Table.grid(padding=(0, 1))
    styles = [next(style for least, style in _STYLES if word.suspicion >= least) for word in corrupted.words]
    styles[corrupted.place] += " underline"
    table.add_row(*(Text(word.text, style) for word, style in zip(corrupted.words, styles, strict=True)))
    table.add_row(*(Text(f"{100 * word.suspicion:.0f}", "dim") for word in corrupted.words))
    return table


def _plain(corrupted: "CorruptedSentence") -> dict[str, Any]:
    return {
        "words": [word.text for word in corrupted.words],
        "suspicion": [round(word.suspicion, 4) for word in corrupted.words],
        "planted": corrupted.place,
        "original": corrupted.original,
        "rank": corrupted.rank,
    }


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
    from lightbert.commands.demo_task import BUNDLED, Comparison, compare

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
    from lightbert.commands.demo_task import RECIPES, SPLITS
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
        from lightbert.commands.info import tour as tour

        show(tour(), json=json)
        return
    from lightbert.train.signals import EXIT_CODE

    report = run(Config(out, minutes, again, finetune=finetune))
    show(report, json=json)
    if not isinstance(report, DemoReport):
        raise typer.Exit(EXIT_CODE)
