"""`lightbert prepare`: turn text into token shards."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbert.commands.options import options, options_in_errors
from lightbert.commands.report import show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.data.shards import Manifest

# BERT's vocabulary size; 30,000 pieces and four special tokens as in the composite attention paper.
_VOCAB_SIZES = {"wordpiece": 30522, "unigram": 30004}


@dataclass(frozen=True)
class Config:
    """The options of the command; `lightbert.data.preparation.Settings` has those that determine the output."""

    sources: Annotated[
        tuple[str, ...],
        typer.Argument(
            help="Files, folders or quoted globs of .txt, .jsonl, .parquet, .csv and .tsv, plain or .gz, .xz, .bz2, "
            ".zst; of a folder, the first three; "
            "hf:NAME[:CONFIG][:SPLIT], a Hugging Face dataset; docstrings, the documentation of all installed "
            "Python packages, or docstrings:stdlib,numpy, of some."
        ),
    ]
    out: Annotated[Path, typer.Option(help="The folder to write.")]
    tokenizer: Annotated[
        str | None,
        typer.Option(help="A tokenizer.json, a vocab.txt, a folder with one, or a bundled model; trained if omitted."),
    ] = None
    vocab_size: Annotated[
        int | None, typer.Option(help="Size of the trained vocabulary, including special tokens.")
    ] = None
    model: Annotated[
        Literal["wordpiece", "unigram"], typer.Option(help="The tokenizer to train: wordpiece or unigram.")
    ] = "wordpiece"
    cased: Annotated[bool, typer.Option("--cased", help="Don't lowercase text.")] = False
    text: Annotated[str, typer.Option(help="The field of .jsonl, or column of .csv, .tsv, .parquet and datasets.")] = (
        "text"
    )
    separator: Annotated[str, typer.Option(help="The field separator of .csv files.")] = ","
    documents: Annotated[
        Literal["blank", "file", "line"],
        typer.Option(help="Documents of a .txt file are separated by blank lines (blank), or are files or lines."),
    ] = "blank"
    sentences: Annotated[
        Literal["line", "split"], typer.Option(help="A sentence is a line, or found by a splitter for English (split).")
    ] = "line"
    held_out: Annotated[float, typer.Option(help="Fraction of documents to hold out, chosen by their hash.")] = 0.01
    undecodable: Annotated[
        Literal["error", "replace"], typer.Option(help="Bytes that are not UTF-8: error or replace.")
    ] = "error"
    shard_characters: Annotated[int, typer.Option(help="Characters of text per shard.")] = 64_000_000
    streams: Annotated[int, typer.Option(help="Number of shard series, like tasks of datatrove.")] = 1
    workers: Annotated[int | None, typer.Option(help="Number of processes; default: all cores.")] = None
    again: Annotated[bool, typer.Option("--again", help="Discard previous work with other settings.")] = False


@dataclass(frozen=True)
class Split:
    """The size of one split."""

    documents: int
    sentences: int
    tokens: int


@dataclass(frozen=True)
class PreparationReport:
    """The size of a prepared folder, and the work of this call."""

    out: str
    vocab: int
    shards: int
    bytes_on_disk: int
    train: Split
    held_out: Split
    parts_kept: int
    tokens_encoded: int
    seconds: float
    tokenizer_seconds: float
    encoding_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """The tokens encoded by this call per second of the whole call."""
        return self.tokens_encoded / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        metrics = {
            "tokens": self.train.tokens + self.held_out.tokens,
            "tokens_encoded": self.tokens_encoded,
            "tokens_per_second": self.tokens_per_second,
            "seconds": self.seconds,
            "tokenizer_seconds": self.tokenizer_seconds,
            "encoding_seconds": self.encoding_seconds,
        }
        return {**asdict(self), "tokens_per_second": self.tokens_per_second, "metrics": metrics}

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        table = Table("split")
        for column in ("documents", "sentences", "tokens"):
            table.add_column(column, justify="right")
        for name, split in (("train", self.train), ("held-out", self.held_out)):
            table.add_row(name, f"{split.documents:,}", f"{split.sentences:,}", f"{split.tokens:,}")
        return Group(table, f"{self.out}: {self._summary()}")

    def _summary(self) -> str:
        size = f"vocabulary {self.vocab:,}, {self.shards} shards, {self.bytes_on_disk / 1e6:,.1f} MB"
        if not self.tokens_encoded:
            return f"{size}; already prepared"
        kept = f", {self.parts_kept} parts reused" if self.parts_kept else ""
        parts = f"{self.tokenizer_seconds:,.1f} s for the tokenizer, {self.encoding_seconds:,.1f} s for encoding"
        return f"{size}; {self.seconds:,.1f} s ({parts}), {self.tokens_per_second:,.0f} tokens/s in all{kept}"


def run(config: Config) -> PreparationReport:
    """Prepare a folder, or resume an interrupted preparation."""
    from lightbert.data.preparation import Settings, prepare

    if config.tokenizer == "":
        # An empty path is the current folder.
        raise InputError("--tokenizer must not be empty; give a file, a folder or a bundled model, or leave it out")
    if config.tokenizer is not None and config.vocab_size is not None:
        raise InputError("--vocab-size can't be combined with --tokenizer; give one of them")
    settings = Settings(
        sources=config.sources,
        tokenizer=config.tokenizer,
        model=config.model,
        vocab_size=_VOCAB_SIZES[config.model] if config.vocab_size is None else config.vocab_size,
        lowercase=not config.cased,
        text=config.text,
        separator=config.separator,
        documents=config.documents,
        sentences=config.sentences,
        held_out=config.held_out,
        undecodable=config.undecodable,
        shard_characters=config.shard_characters,
        streams=config.streams,
    )
    start = time.perf_counter()
    with options_in_errors():
        result = prepare(settings, config.out, config.workers, again=config.again)
    return PreparationReport(
        out=str(config.out),
        vocab=result.manifest.vocab,
        shards=len(result.manifest.shards),
        bytes_on_disk=sum(record.size for _, record in result.manifest.all_files()),
        train=_total(result.manifest, "train"),
        held_out=_total(result.manifest, "held-out"),
        parts_kept=result.parts_kept,
        tokens_encoded=result.tokens,
        seconds=time.perf_counter() - start,
        tokenizer_seconds=result.tokenizer_seconds,
        encoding_seconds=result.encoding_seconds,
    )


def _total(manifest: "Manifest", split: str) -> Split:
    shards = [shard for shard in manifest.shards if shard.split == split]
    return Split(
        documents=sum(shard.documents for shard in shards),
        sentences=sum(shard.sentences for shard in shards),
        tokens=sum(shard.tokens for shard in shards),
    )


@options(Config)
def command(config: Config, json: bool) -> None:
    """Turn text into token shards, with a given tokenizer or one that is trained on the text.

    After an interruption, the same command resumes and keeps finished shards. The output depends only on the text and
    the settings, not on the number of workers.
    """
    show(run(config), json=json)
