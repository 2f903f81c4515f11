"""`lightbert demo`: the main job in a few minutes on a CPU, from text to a trained encoder."""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.demonstration import Demonstration
from lightbert.commands.report import AsJson, show

if TYPE_CHECKING:
    from lightbert.analysis.suspicion import Reader, Word
    from lightbert.commands.trained import Trained
    from lightbert.data.corpus.shards import Shards

SOURCE = "docstrings:stdlib,numpy"
"""Real prose that is on every machine, and read within seconds."""
VOCAB_SIZE = 2048
RECIPE: dict[str, Any] = {
    "model": "convbert-tiny",
    "change": {"depth": 2, "inner": 256, "activation": "relu"},
    "generator": 0.125,
    # Likely samples take tens of millions of tokens to tell from the text; unlikely ones take one.
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
    # A model this small gets slower with more.
    "threads": 1,
}
"""Chosen for what it learns within minutes on two cores."""

_SENTENCES = 200
_WORDS = range(6, 13)
_FOLDERS = ("checkpoints", "data", "data.partial", "final", "generator")
_FILES = ("metrics.jsonl", "recipe.json", "loss.png")


@dataclass(frozen=True)
class Config:
    """Where to, how long, and on which text."""

    out: Path = Path("runs/demo")
    minutes: float = 3.0
    again: bool = False
    source: str = ""
    """Anything that `lightbert prepare` reads; the built-in text if empty."""
    device: str = "auto"


def run(config: Config) -> "Demonstration | Trained":
    """Prepare, pre-train and measure, or measure what is there; an interrupted training is returned as such."""
    from lightbert.commands import pretrain
    from lightbert.config import from_mapping
    from lightbert.data.corpus.preparation import prepare
    from lightbert.data.corpus.settings import Settings
    from lightbert.train.recipe import Recipe

    out, data = config.out, config.out / "data"
    if config.again:
        clear(out)
    trained_before = (out / "final").is_dir()
    if not trained_before:
        prepare(Settings(sources=(config.source or SOURCE,), vocab_size=VOCAB_SIZE, held_out=0.04), data)
        own = {"data": str(data), "out": str(out), "max_minutes": config.minutes, "device": config.device}
        trained = pretrain.run(from_mapping(Recipe, {**RECIPE, **own}))
        if not trained.outcome.finished:
            return trained
    return examine(out, trained_before=trained_before)


def examine(out: Path, *, trained_before: bool = False) -> Demonstration:
    """Measure a finished run: its last evaluation, and words planted into held-out sentences."""
    from lightbert.analysis.suspicion import Reader, find, plant
    from lightbert.data.corpus.shards import Shards
    from lightbert.models import folder
    from lightbert.train import log

    held_out = Shards(out / "data", "held-out")
    reader = Reader(folder.load(out / "final"))
    last = log.read(out / "metrics.jsonl", "held-out")[-1]
    training = Shards(out / "data")
    return Demonstration(
        out=out,
        parameters=sum(parameter.numel() for parameter in reader.model.parameters()),
        documents=training.n_documents,
        tokens=training.n_tokens,
        vocab=training.vocab,
        step=last["step"],
        held_out={name: value for name, value in last.items() if name not in ("kind", "step")},
        sentences=tuple(find(reader, plant(_choose(reader, held_out)))),
        trained_before=trained_before,
    )


def _choose(reader: "Reader", shards: "Shards") -> "list[tuple[Word, ...]]":
    """Sentences of a length that fits on a line, without unknown words, in random order."""
    documents = map(shards.document, range(shards.n_documents))
    sentences = [reader.words(sentence.tolist()) for document in documents for sentence in document.sentences]
    legible = [
        words
        for words in sentences
        if len(words) in _WORDS and sum(word.text.isalpha() for word in words) > len(words) // 2
    ]
    random.Random(0).shuffle(legible)
    return legible[:_SENTENCES]


def clear(out: Path) -> None:
    """Remove what a demo wrote, and nothing else."""
    for name in _FOLDERS:
        shutil.rmtree(out / name, ignore_errors=True)
    for name in _FILES:
        (out / name).unlink(missing_ok=True)


def command(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/demo"),
    minutes: Annotated[float, typer.Option(help="How long to train.")] = 3.0,
    again: Annotated[
        bool, typer.Option("--again", help="Begin anew instead of going on or showing what is there.")
    ] = False,
    zoo: Annotated[bool, typer.Option("--zoo", help="Count and run every model of the papers instead.")] = False,
    json: AsJson = False,
) -> None:
    """Do the main job in a few minutes on a CPU, without any download: from text to a trained encoder.

    Reads the documentation inside this machine's Python packages, trains a tokenizer and then a small ConvBERT on it by
    replaced-token detection, and shows which words the model suspects of not belonging where they stand. The same
    command goes on after an interruption.
    """
    if zoo:
        from lightbert.commands.zoo import run as tour

        show(tour(), json=json)
        return
    from lightbert.train.signals import EXIT_CODE

    report = run(Config(out, minutes, again))
    show(report, json=json)
    if not isinstance(report, Demonstration):
        raise typer.Exit(EXIT_CODE)
