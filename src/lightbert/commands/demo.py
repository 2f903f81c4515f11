"""The report of `lightbert demo`: metrics on held-out text, and replaced words in sentences."""

import math
import random
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import check_unused, options
from lightbert.commands.report import Report, Table, show
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
NEXT = (
    ("lightbert finetune classify model=convbert-small-en data.train=my.csv out=runs/topics", "texts with labels"),
    ("lightbert prepare 'my/*.txt' --out runs/mine/data --tokenizer convbert-small-en", "tokenize text"),
    ("lightbert pretrain adapt data=runs/mine/data out=runs/mine", "adapt that model to it, 20 minutes on a CPU"),
    ("lightbert pretrain convbert-small-rtd data=… out=…", "the paper's model, on a GPU"),
    ("lightbert demo --zoo", "the sizes of all models, and a forward pass of each family"),
)
# Lowest suspicion of each style. Probabilities are low, because few words of the training text are replaced.
_STYLES = ((0.6, "bold white on red"), (0.35, "bold red"), (0.2, "yellow"), (0.0, ""))


def report_of(
    out: Path, *, trained_before: bool = False, comparison: "Comparison | None" = None, skipped: str = ""
) -> Report:
    """Evaluate a finished run: its last held-out metrics, and the detection of replaced words in held-out sentences.

    comparison: the fine-tuned bundled model beside others; None if it wasn't fine-tuned, for the reason `skipped`.
    """
    from lightbert.analysis.suspicion import Detector, corrupt, score_corrupted
    from lightbert.data.shards import Shards
    from lightbert.models import folder
    from lightbert.train import log

    detector, training = Detector(folder.load(out / "final")), Shards(out / "data")
    parameters = sum(parameter.numel() for parameter in detector.model.parameters())
    last = log.read(out / "metrics.jsonl", "held-out")[-1]
    sentences = score_corrupted(detector, corrupt(_choose(detector, Shards(out / "data", "held-out"))))
    _draw_words(sentences[:SHOWN], last["step"], out / "words.svg")
    # Pictures are missing where matplotlib is.
    pictures = {what: out / name for what, name in _PICTURES.items() if (out / name).is_file()}
    metrics = {name: value for name, value in last.items() if name not in ("kind", "step")}
    metrics |= {
        # Of predicting "original" for every token, and of a random choice of word.
        "baseline_accuracy": 1.0 - metrics["replaced"],
        "planted_found": fmean(sentence.rank == 1 for sentence in sentences),
        "planted_guessed": fmean(1 / len(sentence.words) for sentence in sentences),
    }
    content = {
        "out": str(out),
        "model": str(out / "final"),
        "picture": str(pictures["loss curve"]) if "loss curve" in pictures else None,
        "parameters": parameters,
        "corpus": {"documents": training.n_documents, "tokens": training.n_tokens, "vocab": training.vocab},
        "step": last["step"],
        "trained_before": trained_before,
        "metrics": metrics,
        "comparison": None if comparison is None else comparison.to_json(),
        "sentences": [_plain(sentence) for sentence in sentences],
    }
    lines = [
        *([f"{out} has been trained before; --again trains it from scratch", ""] if trained_before else []),
        f"{training.n_tokens:,} tokens of {training.n_documents:,} documented modules and classes, "
        f"{training.vocab:,} word pieces",
        f"a ConvBERT of {parameters / 1e6:.1f} M parameters after {last['step']:,} steps: {out / 'final'}",
        *(f"{what}: {path}" for what, path in pictures.items()),
        "",
    ]
    compared = [part for part in (comparison, skipped) if part]
    parts = [*lines, _numbers(metrics), "", *_words(sentences, metrics), *compared, "", _next(out, comparison)]
    return Report(content, parts)


_PICTURES = {"loss curve": "loss.png", "words below": "words.svg"}


def _numbers(metrics: Mapping[str, float]) -> Table:
    accuracy, precision, recall = (metrics[f"rtd_{name}"] for name in ("accuracy", "precision", "recall"))
    rows = [
        ('always "original"', f"{metrics['baseline_accuracy']:.2%}", "", f"{0:.1%}"),
        ("the model", f"{accuracy:.2%}", f"{precision:.1%}", f"{recall:.1%}"),
    ]
    return Table(
        ("", "accuracy", "precision", "recall"),
        rows,
        title="Detection of the words that the generator replaced in held-out text",
        caption="The generator samples at a high temperature; plausible samples take far more text to detect.",
        bold=1,
    )


def _words(sentences: "Sequence[CorruptedSentence]", metrics: Mapping[str, float]) -> "Iterator[RenderableType]":
    from rich.text import Text

    yield (
        f"One word was replaced in each of {len(sentences)} held-out sentences. It has the highest suspicion in "
        f"{metrics['planted_found']:.0%} of them; a random choice would find {metrics['planted_guessed']:.0%}."
    )
    yield Text("Suspicion in percent; the replaced word is underlined:\n", style="dim")
    for sentence in sentences[:SHOWN]:
        yield _sentence(sentence)
        replacement, rank = sentence.words[sentence.place].text, f"{sentence.rank} of {len(sentence.words)}"
        yield Text(f"{replacement} replaces {sentence.original}: rank {rank}\n", style="dim")


def _next(out: Path, comparison: "Comparison | None") -> Table:
    rows = [*NEXT, (f"lightbert serve {shlex.quote(str(out / 'final'))}", "open the model in a browser")]
    if comparison is not None:
        model, sentence = shlex.quote(str(comparison.model)), shlex.quote(comparison.sentence)
        rows.append((f"lightbert serve {model}", "open the fine-tuned model in a browser"))
        rows.append((f"lightbert predict {model} {sentence}", "which package does it document?"))
    return Table(("", ""), rows, title="What to run next, on your own text", left=2, frame=False)


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
    """The options of the command."""

    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/demo")
    minutes: Annotated[float, typer.Option(help="How long to train.")] = 3.0
    again: Annotated[bool, typer.Option("--again", help="Remove the previous demo and start again.")] = False
    finetune: Annotated[
        bool, typer.Option("--finetune", help="At the end, fine-tune a layer of the bundled model: a minute or two.")
    ] = False
    zoo: Annotated[
        bool, typer.Option("--zoo", help="Instead, count the parameters of every model and run one of each family.")
    ] = False
    source: Annotated[
        str, typer.Option(help="A source of `lightbert prepare`; default: the documentation of installed packages.")
    ] = ""
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"

    def __post_init__(self) -> None:
        # Before the text is prepared; as a key of the recipe, 0 would mean no limit.
        if not 0 < self.minutes < math.inf:
            raise InputError(f"--minutes must be > 0 and finite, got {self.minutes}")


def run(config: Config) -> "Report | TrainingReport | FinetuningReport":
    """Prepare text, pre-train, evaluate and fine-tune; what an earlier call has trained is only evaluated.

    Returns the report of the training if it was interrupted.
    """
    if config.zoo:
        from lightbert.commands.info import tour

        check_unused(config, {"zoo"}, "with --zoo")
        return tour()
    from lightbert.commands import pretrain
    from lightbert.commands.demo_task import Comparison
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
    compared = _compare(out, config.device) if config.finetune else None
    if isinstance(compared, str):
        return report_of(out, trained_before=trained_before, skipped=compared)
    if compared is None or isinstance(compared, Comparison):
        return report_of(out, trained_before=trained_before, comparison=compared)
    return compared


def _compare(out: Path, device: str) -> "Comparison | FinetuningReport | str":
    """Fine-tune the bundled model; return a sentence if its weights are missing."""
    from lightbert import bundled
    from lightbert.commands.demo_task import BUNDLED, compare

    try:
        bundled.folder_of(BUNDLED)
    except InputError as error:
        return f"fine-tuning was skipped: {error}"
    print(f"training on the vectors of {BUNDLED} and words, then fine-tuning the tiny model", file=sys.stderr)
    return compare(out / PACKAGES, out / "final", device)


def _draw_words(sentences: "Sequence[CorruptedSentence]", step: int, picture: Path) -> None:
    """Draw the sentences that the report prints, or print why they can't be drawn."""
    from lightbert.analysis.figure import write
    from lightbert.analysis.suspicion import plot_suspicion

    title = f"probability in % that a word was replaced, after {step:,} steps; the replaced word is framed"
    try:
        write(plot_suspicion(sentences, title), picture)
    except InputError as error:
        print(f"{picture.name} was not written: {error}", file=sys.stderr)


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
    for split in SPLITS:
        (packages / f"{split}.csv").unlink(missing_ok=True)
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


@options(Config)
def command(config: Config, json: bool) -> None:
    """Train a small encoder from text in a few minutes on a CPU, without any download.

    Reads the documentation of the Python packages on this machine, trains a tokenizer and a small ConvBERT on it by
    replaced-token detection, and shows which words of a sentence the model detects as replaced. With --finetune it then
    trains a classifier on the vectors of the bundled English model and on words to tell which package a sentence
    documents, and compares it with the small model and with words alone. After an interruption, the same command
    resumes the training.
    """
    from lightbert.train.signals import EXIT_CODE

    report = run(config)
    show(report, json=json)
    if not isinstance(report, Report):
        raise typer.Exit(EXIT_CODE)
