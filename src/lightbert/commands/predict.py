"""`lightbert predict`: what a fine-tuned model says about texts, files of them, and pipes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from lightbert.commands.report import show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.tasks.predict.records import Fields, Source

BadRows = Literal["error", "skip"]

_PIPE = "-"


@dataclass(frozen=True)
class Config:
    """A model, and one of: texts, pairs of them, a question with its context, a file ("-" = standard input)."""

    model: str
    texts: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    question: str | None = None
    context: str | None = None
    file: str = ""
    text: str = "text"
    text_b: str = ""
    separator: str = ","
    bad_rows: BadRows = "error"
    out: Path | None = None
    batch: int = 0
    length: int = 0
    chunk: int = 0
    device: str = "auto"


@dataclass(frozen=True)
class Predicted:
    """How many texts were predicted, and what was remarkable about them."""

    count: int
    cut: int
    length: int
    skipped: int
    out: Path | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {
            "predictions": self.count,
            "cut": self.cut,
            "skipped": self.skipped,
            "out": None if self.out is None else str(self.out),
        }

    def __rich__(self) -> "RenderableType":
        return f"{self.count:,} predictions: {self.out}"


def run(config: Config, out: TextIO) -> Predicted:
    """Write a line of JSON for each text to `out` as soon as it is there, or to the file that `config` names."""
    from lightbert.data.text.row_file import remedy_for_bad_rows
    from lightbert.interop.load import load
    from lightbert.tasks.predict.predictor import Predictor
    from lightbert.tasks.predict.records import Fields, prediction_lines

    predictor = Predictor(
        load(config.model), batch=config.batch, device=config.device, length=config.length, chunk=config.chunk
    )
    # Texts of the command line have no names of the user's.
    fields, count = Fields() if config.texts and _PIPE not in config.texts else Fields(config.text, config.text_b), 0
    with (
        remedy_for_bad_rows("--bad-rows skip"),
        _source(config, predictor.kind.name, fields) as source,
        _destination(config.out, out) as write,
    ):
        for line in prediction_lines(predictor, source, fields):
            write(line)
            count += 1
    return Predicted(count, predictor.cut, predictor.encoder.length, source.skipped, config.out)


def command(
    model: Annotated[str, typer.Argument(help="A fine-tuned model: a folder, or org/name on the Hugging Face Hub.")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts, or - for standard input.")] = None,
    pair: Annotated[list[str] | None, typer.Option(help="The second text of a pair, once for each text.")] = None,
    question: Annotated[str | None, typer.Option(help="A question about the --context.")] = None,
    context: Annotated[str | None, typer.Option(help="The text that holds the answer.")] = None,
    file: Annotated[
        str, typer.Option(help="A .jsonl, .csv, .tsv, .parquet or .txt file, compressed or not; - for standard input.")
    ] = "",
    text: Annotated[str, typer.Option(help="What the records call the text.")] = "text",
    text_b: Annotated[
        str, typer.Option(help="What the records call the second text; without it text_b, where there is one.")
    ] = "",
    separator: Annotated[str, typer.Option(help="What stands between the fields of .csv files.")] = ",",
    bad_rows: Annotated[BadRows, typer.Option(help="A bad row is an error, or is left out and counted.")] = "error",
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this file, which appears whole.")] = None,
    batch: Annotated[int, typer.Option(help="Rows of 128 tokens at once; 0 = as many as suit the device.")] = 0,
    length: Annotated[int, typer.Option(help="The longest row of tokens; 0 = as in fine-tuning.")] = 0,
    chunk: Annotated[
        int, typer.Option(help="Texts read ahead at most; 1 answers each line at once, 0 = as suits the device.")
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="With --out: print one JSON object about the run.")] = False,
) -> None:
    """Predict texts with a fine-tuned model: one line of JSON for each, in their order.

    Labels come with probabilities, answers and tags with the characters they stand at. A line of standard input or of a
    .txt file is a text, or a JSON object with "text" and "text_b", "question" and "context", or "words". The fields of
    a record are kept beside the prediction; one that has the same name is called input_NAME.

    A text that is too long is cut at its end, a pair at the end of the longer text, and counted. For answers and tags
    long texts are read in overlapping windows. Any amount of text takes the same memory.
    """
    report = run(
        Config(
            model=model,
            texts=tuple(texts or ()),
            pairs=tuple(pair or ()),
            question=question,
            context=context,
            file=file,
            text=text,
            text_b=text_b,
            separator=separator,
            bad_rows=bad_rows,
            out=out,
            batch=batch,
            length=length,
            chunk=chunk,
            device=device,
        ),
        sys.stdout,
    )
    if report.cut:
        which = "1 text was" if report.cut == 1 else f"{report.cut:,} texts were"
        print(f"{which} cut to {report.length} tokens", file=sys.stderr)
    if report.out is not None:
        show(report, json=json)


def _source(config: Config, kind: str, fields: "Fields") -> "Source":
    from lightbert.tasks.predict.records import Lines, RecordList, Source, check_columns, open_records

    given = _given(config)
    _refuse_other_kind(config, kind)
    source: Source
    if given:
        source = RecordList(given)
    elif _PIPE in (config.file, *config.texts):
        source = Lines(sys.stdin.buffer, "standard input", config.bad_rows)
    else:
        source = open_records(config.file, config.bad_rows, separator=config.separator)
        check_columns(source, fields, kind)
    return source


def _refuse_other_kind(config: Config, kind: str) -> None:
    """Refuse what a command line asks of a model that was made for something else."""
    if config.question is not None and kind != "spans":
        raise InputError(f"the model answers no questions, its task is of the kind {kind!r}: give it texts")
    if config.texts and _PIPE not in config.texts and kind == "spans":
        raise InputError("the model answers questions: give it --question and --context instead of texts")
    if config.pairs and kind == "tokens":
        raise InputError("the model tags the words of single texts: leave --pair out")


def _given(config: Config) -> list[dict[str, str]]:
    """The records of the command line itself; none when a file or standard input is to be read."""
    asked = config.question is not None or config.context is not None
    if (len(config.texts) > 0) + bool(config.file) + asked != 1:
        raise InputError("give one of: texts, --question with --context, --file PATH, or - for standard input")
    if asked:
        if config.question is None or config.context is None:
            raise InputError("--question and --context belong together; give both")
        return [{"question": config.question, "context": config.context}]
    if config.pairs and len(config.pairs) != len(config.texts):
        raise InputError(f"--pair is given {len(config.pairs)} times for {len(config.texts)} texts; give one for each")
    if _PIPE in config.texts:
        if len(config.texts) > 1:
            raise InputError("- stands for standard input, alone; give it without other texts")
        return []
    if config.pairs:
        return [{"text": text, "text_b": second} for text, second in zip(config.texts, config.pairs, strict=True)]
    return [{"text": text} for text in config.texts]


@contextmanager
def _destination(path: Path | None, out: TextIO) -> Iterator[Callable[[str], None]]:
    """What takes the lines. A pipe gets each at once, a file appears when all are there."""
    from lightbert.files import file_atomic, make_folder
    from lightbert.progress import progress

    if path is None:
        yield lambda line: print(line, file=out, flush=True)
        return
    make_folder(path.parent)
    with (
        file_atomic(path) as temporary,
        temporary.open("w", encoding="utf-8") as file,
        progress("predict", unit="texts") as bar,
    ):

        def write(line: str) -> None:
            file.write(f"{line}\n")
            bar.advance()

        yield write
