"""`lightbert predict`: predictions of a fine-tuned model for texts, files and standard input."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from lightbert.commands.inputs import check_file, check_model
from lightbert.commands.options import options, options_in_errors
from lightbert.commands.report import show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.tasks.predict.inputs import Fields
    from lightbert.tasks.predict.output_files import Write
    from lightbert.tasks.predict.predictor import Predictor
    from lightbert.tasks.predict.records import Source

BadRows = Literal["error", "skip"]

_STDIN = "-"
# A text that is the name of such a file is most likely meant as the file.
_FILE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".txt", ".json", ".gz", ".xz", ".bz2", ".zst")


@dataclass(frozen=True)
class Config:
    """A model, and one of: texts, text pairs, a question with its context, a file ("-" is standard input)."""

    model: Annotated[
        str,
        typer.Argument(help="A fine-tuned model: a folder, an exported file, or org/name on the Hugging Face Hub."),
    ]
    texts: Annotated[tuple[str, ...], typer.Argument(help="Texts, or - for standard input.")] = ()
    pairs: Annotated[
        tuple[str, ...], typer.Option("--pair", help="The second text of a pair; repeat it for each text.")
    ] = ()
    question: Annotated[str | None, typer.Option(help="A question about the --context.")] = None
    context: Annotated[str | None, typer.Option(help="The text that contains the answer.")] = None
    file: Annotated[
        str, typer.Option(help="A .jsonl, .csv, .tsv, .parquet or .txt file, compressed or not; - for standard input.")
    ] = ""
    text: Annotated[str | None, typer.Option(help="The field of the text; default: as in fine-tuning, or text.")] = None
    text_b: Annotated[
        str | None, typer.Option(help="The field of the second text; default: as in fine-tuning, or text_b.")
    ] = None
    separator: Annotated[
        str | None, typer.Option(help="The field separator of .csv files; default: as in fine-tuning, or a comma.")
    ] = None
    bad_rows: Annotated[BadRows, typer.Option(help="Raise an error for a bad row, or skip and count it.")] = "error"
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this file: .jsonl, .csv or .tsv.")] = None
    batch: Annotated[int, typer.Option(help="Rows of 128 tokens per batch; 0: chosen for the device.")] = 0
    length: Annotated[int, typer.Option(help="Maximum number of tokens; 0: as in fine-tuning.")] = 0
    chunk: Annotated[
        int,
        typer.Option(
            help="Maximum number of texts to prefetch; 1 answers each line at once; 0: chosen for the device."
        ),
    ] = 0
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"


@dataclass(frozen=True)
class PredictionReport:
    """The number of predictions, truncated texts and skipped rows."""

    count: int
    cut: int
    length: int
    skipped: int
    out: Path | None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "predictions": self.count,
            "cut": self.cut,
            "skipped": self.skipped,
            "out": None if self.out is None else str(self.out),
        }

    def __rich__(self) -> "RenderableType":
        skipped = f" ({self.skipped:,} rows skipped)" if self.skipped else ""
        return f"{self.count:,} predictions{skipped}: {self.out}"


def run(config: Config, out: TextIO) -> PredictionReport:
    """Write one line of JSON per text to `out` as soon as it is predicted, or all predictions to `config.out`."""
    from lightbert.files import check_not_input
    from lightbert.tasks.predict.output_files import check_path

    # Before torch is imported, which takes seconds.
    if config.out is not None:
        check_path(config.out)
        check_not_input(config.out, config.file, *(text for text in config.texts if text == _STDIN))
    records = _given(config)
    check_file(config.file)
    check_model(config.model)
    from lightbert.tasks.predict.exported import ExportedModel, load_on
    from lightbert.tasks.predict.inputs import Fields
    from lightbert.tasks.predict.predictor import Predictor
    from lightbert.tasks.predict.records import predicted_records

    model = load_on(config.model, config.device)
    predictor = Predictor(
        model,
        batch=config.batch,
        device=config.device,
        length=config.length,
        chunk=config.chunk,
        runtime=model.runtime if isinstance(model, ExportedModel) else None,
    )
    # Texts given as arguments have the default field names.
    given = bool(config.texts) and _STDIN not in config.texts
    fields, count = Fields() if given else Fields.of(predictor.model.task, config.text, config.text_b), 0
    with (
        options_in_errors(),
        _source(config, records, predictor, fields) as source,
        _destination(config.out, out, predictor.model.task) as write,
    ):
        for record in predicted_records(predictor, source, fields):
            write(record)
            count += 1
    length = predictor.kind.most_tokens(predictor.encoder.length)
    return PredictionReport(count, predictor.cut, length, source.skipped, config.out)


@options(
    Config, Annotated[bool, typer.Option("--json", help="With --out: print a JSON object that describes the run.")]
)
def command(config: Config, json: bool) -> None:
    """Predict texts with a fine-tuned model; prints one line of JSON per text, in order, or writes a file.

    Labels have probabilities; answers and tags have character offsets. A line of standard input or of a .txt file is a
    text, or a JSON object with "text" and "text_b", "question" and "context", or "words"; if the first line is a JSON
    object, all lines must be. The fields of a record are copied to the output; a field whose name is that of an output
    field is renamed to input_NAME.

    Texts that are too long are truncated at the end, pairs at the end of the longer text, and counted. For answers and
    tags, long texts are split into overlapping windows. Memory use doesn't depend on the amount of text.
    """
    report = run(config, sys.stdout)
    if report.cut:
        which = "1 text was" if report.cut == 1 else f"{report.cut:,} texts were"
        print(f"{which} truncated to {report.length} tokens", file=sys.stderr)
    if report.out is not None:
        show(report, json=json)


def _source(config: Config, given: list[dict[str, str]], predictor: "Predictor", fields: "Fields") -> "Source":
    from lightbert.data.text_files import bounded_lines
    from lightbert.tasks.predict.records import Lines, RecordList, Source, check_columns, open_records

    kind = predictor.kind.name
    _check_kind(config, kind)
    source: Source
    if given:
        source = RecordList(given)
    elif _STDIN in (config.file, *config.texts):
        source = Lines(bounded_lines(sys.stdin.buffer, "standard input"), "standard input", config.bad_rows)
    else:
        as_in_training = predictor.model.task.get("data", {}).get("separator", ",")
        separator = as_in_training if config.separator is None else config.separator
        source = open_records(config.file, config.bad_rows, separator=separator)
        check_columns(source, fields, kind)
    return source


def _check_kind(config: Config, kind: str) -> None:
    """Check that the arguments fit the task of the model."""
    if config.question is not None and kind != "spans":
        raise InputError(
            f"--question requires a question answering model, but the model's task is {kind!r}; give texts instead"
        )
    if config.texts and _STDIN not in config.texts and kind == "spans":
        raise InputError("a question answering model requires --question and --context instead of texts")
    if config.pairs and kind == "tokens":
        raise InputError("--pair can't be used with a model that tags words; remove it")


def _given(config: Config) -> list[dict[str, str]]:
    """The records given as arguments; empty for a file or standard input."""
    asked = config.question is not None or config.context is not None
    if (len(config.texts) > 0) + bool(config.file) + asked != 1:
        raise InputError("give one of: texts, --question with --context, --file PATH, or - for standard input")
    if asked:
        if config.question is None or config.context is None:
            raise InputError("--question and --context must be given together; add the other one")
        return [{"question": config.question, "context": config.context}]
    if config.pairs and len(config.pairs) != len(config.texts):
        raise InputError(f"--pair must be given once per text, got {len(config.pairs)} for {len(config.texts)} texts")
    if _STDIN in config.texts:
        if len(config.texts) > 1:
            raise InputError("'-' can't be combined with other texts; give it alone to read standard input")
        return []
    for text in config.texts:
        if Path(text).suffix.lower() in _FILE_SUFFIXES and Path(text).is_file():
            raise InputError(f"'{text}' is a file; to predict its texts, write --file {shlex.quote(text)}")
    if config.pairs:
        return [{"text": text, "text_b": second} for text, second in zip(config.texts, config.pairs, strict=True)]
    return [{"text": text} for text in config.texts]


@contextmanager
def _destination(path: Path | None, out: TextIO, task: Mapping[str, Any]) -> Iterator["Write"]:
    """The function that writes a record: to `out` at once, or to a file that appears when all are written."""
    from lightbert.files import make_folder
    from lightbert.progress import progress
    from lightbert.tasks.predict.output_files import json_line, prediction_file

    if path is None:
        yield lambda record: print(json_line(record), file=out, flush=True)
        return
    make_folder(path.parent)
    # Several labels are joined as in the table that the model was fine-tuned on.
    list_separator = task.get("data", {}).get("label_separator", ";")
    with prediction_file(path, list_separator) as write_record, progress("predict", unit="texts") as bar:

        def write(record: Mapping[str, Any]) -> None:
            write_record(record)
            bar.advance()

        yield write
