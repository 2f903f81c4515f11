"""`lightbert prepare`: turn text into token shards."""

import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lightbert.commands.options import check_unused, options, options_in_errors
from lightbert.commands.report import Report, Table, show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from lightbert.data.shards import Manifest

# BERT's vocabulary size; 30,000 pieces and four special tokens as in the composite attention paper.
_VOCAB_SIZES = {"wordpiece": 30522, "unigram": 30004}


@dataclass(frozen=True)
class Config:
    """The options of the command; `lightbert.data.preparation.Settings` has those that determine the output."""

    sources: Annotated[
        tuple[str, ...],
        typer.Argument(
            help="Files, folders or quoted globs of .txt, .jsonl, .parquet, .json, .csv, .tsv and .xlsx, plain or .gz, "
            ".xz, .bz2, .zst; of a folder, the first three; "
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
    text: Annotated[str, typer.Option(help="The field of JSON, or column of other tables and of datasets.")] = "text"
    separator: Annotated[str, typer.Option(help="The field separator of .csv files.")] = ","
    encoding: Annotated[str, typer.Option(help="The encoding of the files, such as latin-1.")] = "utf-8"
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


def run(config: Config) -> Report:
    """Prepare a folder, or resume an interrupted preparation."""
    from lightbert.data.preparation import Settings, prepare

    if config.tokenizer == "":
        # An empty path is the current folder.
        raise InputError("--tokenizer must not be empty; give a file, a folder or a bundled model, or leave it out")
    if config.tokenizer is not None:
        trained = {"vocab_size", "model", "cased"}
        check_unused(config, {field.name for field in fields(config)} - trained, "with --tokenizer")
    settings = Settings(
        sources=config.sources,
        tokenizer=config.tokenizer,
        model=config.model,
        vocab_size=_VOCAB_SIZES[config.model] if config.vocab_size is None else config.vocab_size,
        lowercase=not config.cased,
        text=config.text,
        separator=config.separator,
        encoding=config.encoding,
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
    seconds, out = time.perf_counter() - start, str(config.out)
    splits = {name: _counts(result.manifest, name) for name in ("train", "held-out")}
    vocab, shards = result.manifest.vocab, len(result.manifest.shards)
    size = sum(record.size for _, record in result.manifest.all_files())
    speed = result.tokens / seconds
    seconds_of = {
        "seconds": seconds,
        "tokenizer_seconds": result.tokenizer_seconds,
        "encoding_seconds": result.encoding_seconds,
    }
    work = {"tokens_encoded": result.tokens, **seconds_of, "tokens_per_second": speed}
    content = {
        "out": out,
        "vocab": vocab,
        "shards": shards,
        "bytes_on_disk": size,
        "train": splits["train"],
        "held_out": splits["held-out"],
        "parts_kept": result.parts_kept,
        **work,
        "metrics": {"tokens": sum(counts["tokens"] for counts in splits.values()), **work},
    }
    rows = [(name, *(f"{count:,}" for count in counts.values())) for name, counts in splits.items()]
    line = f"{out}: vocabulary {vocab:,}, {shards} shards, {size / 1e6:,.1f} MB"
    if result.tokens:
        line += f"; {seconds:,.1f} s ({result.tokenizer_seconds:,.1f} s for the tokenizer, "
        line += f"{result.encoding_seconds:,.1f} s for encoding), {speed:,.0f} tokens/s in all"
        line += f", {result.parts_kept} parts reused" if result.parts_kept else ""
    else:
        line += "; already prepared"
    return Report(content, [Table(("split", "documents", "sentences", "tokens"), rows), line])


def _counts(manifest: "Manifest", split: str) -> dict[str, int]:
    shards = [shard for shard in manifest.shards if shard.split == split]
    return {name: sum(getattr(shard, name) for shard in shards) for name in ("documents", "sentences", "tokens")}


@options(Config)
def command(config: Config, json: bool) -> None:
    """Turn text into token shards, with a given tokenizer or one that is trained on the text.

    After an interruption, the same command resumes and keeps finished shards. The output depends only on the text and
    the settings, not on the number of workers.
    """
    show(run(config), json=json)
