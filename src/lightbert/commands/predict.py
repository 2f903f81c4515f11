"""`lightbert predict`: predictions of a fine-tuned model for texts, files and standard input."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from lightbert.commands.options import (
    CommaSeparated,
    check_file,
    check_model,
    check_unused,
    options,
    options_in_errors,
    stored_task,
)
from lightbert.commands.report import Report, show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from lightbert.data.table_writer import Write
    from lightbert.data.tables import Table
    from lightbert.tasks.predict.inputs import Fields
    from lightbert.tasks.predict.predictor import Predictor
    from lightbert.tasks.predict.records import Source


BadRows = Literal["error", "skip"]

_STDIN = "-"
# A text that is the name of such a file is most likely meant as the file.
_FILE_SUFFIXES = (
    ".csv",
    ".tsv",
    ".jsonl",
    ".ndjson",
    ".json",
    ".parquet",
    ".xlsx",
    ".txt",
    ".gz",
    ".xz",
    ".bz2",
    ".zst",
)


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
        str, typer.Option(help="A .csv, .tsv, .jsonl, .json, .parquet, .xlsx or .txt file; - for standard input.")
    ] = ""
    text: Annotated[str | None, typer.Option(help="The field of the text; default: as in fine-tuning, or text.")] = None
    text_b: Annotated[
        str | None, typer.Option(help="The field of the second text; default: as in fine-tuning, or text_b.")
    ] = None
    separator: Annotated[
        str | None, typer.Option(help="The field separator of .csv files; default: as in fine-tuning, or a comma.")
    ] = None
    header: Annotated[
        str | None,
        typer.Option(help="none: a table has no header; its columns are 0, 1, 2, …; default: as in fine-tuning."),
    ] = None
    encoding: Annotated[str, typer.Option(help="The encoding of the file, such as latin-1.")] = "utf-8"
    bad_rows: Annotated[BadRows, typer.Option(help="Raise an error for a bad row, or skip and count it.")] = "error"
    top: Annotated[
        int, typer.Option(help="Keep the N most probable labels, with six digits; 0: the probabilities of all labels.")
    ] = 0
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


def run(config: Config, out: TextIO) -> Report:
    """Write one line of JSON per text to `out` as soon as it is predicted, or all predictions to `config.out`."""
    from lightbert.data.table_writer import check_path
    from lightbert.files import check_not_input

    # Before torch is imported, which takes seconds.
    if config.out is not None:
        check_path(config.out)
        check_not_input(config.out, config.file, *(text for text in config.texts if text == _STDIN))
    records = _given(config)
    check_file(config.file)
    check_model(config.model)
    from lightbert.tasks.predict.exported import load_on
    from lightbert.tasks.predict.inputs import Fields
    from lightbert.tasks.predict.predictor import Predictor
    from lightbert.tasks.predict.records import check_columns, keep_top, predicted_records

    if config.file not in ("", _STDIN) and (task := stored_task(config.model)):
        # Before torch is imported.
        with options_in_errors():
            columns = Fields.of(task, config.text, config.text_b)
            check_columns(_open(config, task, columns), columns, str(task.get("kind", "")))
    model = load_on(config.model, config.device)
    predictor = Predictor(
        model,
        batch=config.batch,
        device=config.device,
        length=config.length,
        chunk=config.chunk,
    )
    # Texts typed as arguments have the default field names.
    typed = bool(config.texts) and _STDIN not in config.texts
    fields, count = Fields() if typed else Fields.of(predictor.model.task, config.text, config.text_b), 0
    with (
        options_in_errors(),
        _source(config, records, predictor, fields) as source,
        _destination(config.out, out, predictor.model.task) as write,
    ):
        for record in predicted_records(predictor, source, fields):
            write(keep_top(record, config.top) if config.top else record)
            count += 1
    _print_truncated(predictor.cut, predictor.kind.most_tokens(predictor.encoder.length))
    return _report("predictions", f"{count:,} predictions", count, predictor.cut, source.skipped, config.out)


def _print_truncated(count: int, length: int) -> None:
    if count:
        which = "1 text was" if count == 1 else f"{count:,} texts were"
        print(f"{which} truncated to {length} tokens", file=sys.stderr)


def _report(name: str, amount: str, count: int, cut: int, skipped: int, out: Path | None, **more: Any) -> Report:
    content = {name: count, **more, "cut": cut, "skipped": skipped, "out": None if out is None else str(out)}
    return Report(content, [f"{amount}{f' ({skipped:,} rows skipped)' if skipped else ''}: {out}"])


@options(
    Config, Annotated[bool, typer.Option("--json", help="With --out: print a JSON object that describes the run.")]
)
def command(config: Config, json: bool) -> None:
    """Predict texts with a fine-tuned model; prints one line of JSON per text, in order, or writes a file.

    Labels have probabilities; answers and tags have character offsets. A line of standard input or of a .txt file is a
    text, or a JSON object with "text" and "text_b", "question" and "context", or "words"; if the first line is a JSON
    object, all lines must be. Standard input whose first line has the column of the text among others is CSV. The
    fields of a record are copied to the output; a field whose name is that of an output field is renamed to input_NAME.

    Texts that are too long are truncated at the end, pairs at the end of the longer text, and counted. For answers and
    tags, long texts are split into overlapping windows. Memory use doesn't depend on the amount of text.
    """
    report = run(config, sys.stdout)
    if config.out is not None:
        show(report, json=json)


def _source(config: Config, typed: list[dict[str, str]], predictor: "Predictor", fields: "Fields") -> "Source":
    from lightbert.data.tables import RecordList
    from lightbert.tasks.predict.records import check_columns

    kind = predictor.kind.name
    _check_kind(config, kind)
    if typed:
        return RecordList(typed)
    source = _open(config, predictor.model.task, fields)
    check_columns(source, fields, kind)
    return source


def _open(config: "Config | EmbedConfig", task: Mapping[str, Any], fields: "Fields") -> "Table":
    from lightbert.tasks.predict.records import open_records, table_options

    names = ("separator", "header", "encoding", "bad_rows")
    options = table_options(task, **{name: getattr(config, name) for name in names})
    return open_records(config.file or _STDIN, fields, options)


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
    if (config.texts or asked) and _STDIN not in config.texts and not config.file:
        of_files = {"text", "text_b", "separator", "header", "encoding", "bad_rows"}
        check_unused(config, {field.name for field in fields(config)} - of_files, "without --file or -")
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
    from lightbert.data.table_writer import json_line, record_file
    from lightbert.files import make_folder
    from lightbert.progress import progress

    if path is None:
        yield lambda record: print(json_line(record), file=out, flush=True)
        return
    make_folder(path.parent)
    # Several labels are joined as in the table that the model was fine-tuned on.
    list_separator = task.get("data", {}).get("label_separator", ";")
    with record_file(path, list_separator) as write_record, progress("predict", unit="texts") as bar:

        def write(record: Mapping[str, Any]) -> None:
            write_record(record)
            bar.advance()

        yield write


_FORMATS = (".npy", ".parquet")


@dataclass(frozen=True)
class EmbedConfig:
    """A model, a file of texts ("-" is standard input), and how its vectors are computed and written."""

    model: Annotated[
        str,
        typer.Argument(help="A model: a folder, convbert-small-en, an exported file, or org/name on the Hub."),
    ]
    file: Annotated[
        str,
        typer.Argument(help="A .csv, .tsv, .jsonl, .json, .parquet, .xlsx or .txt file; - for standard input."),
    ]
    out: Annotated[Path, typer.Option(help="The file to write, atomically: .npy or .parquet.")]
    pool: Annotated[
        Literal["auto", "mean", "cls", "max"],
        typer.Option(
            help="The mean or maximum over tokens, or the state of [CLS]; auto: as a sentence encoder, or the mean."
        ),
    ] = "auto"
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize", help="Scale each vector to length 1; default: as a sentence encoder."
        ),
    ] = None
    dtype: Annotated[
        Literal["float32", "int8", "binary"],
        typer.Option(help="int8: each vector scaled to a largest value of 127; binary: 8 signs per byte."),
    ] = "float32"
    prompt_name: Annotated[
        str | None, typer.Option(help="The prompt of a sentence encoder, such as query; default: its default prompt.")
    ] = None
    size: Annotated[
        int,
        typer.Option(help="Keep the first values of each vector only; 0: all. For models trained with vector.sizes."),
    ] = 0
    text: Annotated[str | None, typer.Option(help="The field of the text; default: as in fine-tuning, or text.")] = None
    text_b: Annotated[
        str | None,
        typer.Option(help="The field of the second text; default: as in fine-tuning, or text_b, if it exists."),
    ] = None
    keep: Annotated[
        tuple[str, ...],
        CommaSeparated(),
        typer.Option(help="Fields to copy to a .parquet file, such as id,text."),
    ] = ()
    separator: Annotated[
        str | None, typer.Option(help="The field separator of .csv files; default: as in fine-tuning, or a comma.")
    ] = None
    header: Annotated[
        str | None,
        typer.Option(help="none: a table has no header; its columns are 0, 1, 2, …; default: as in fine-tuning."),
    ] = None
    encoding: Annotated[str, typer.Option(help="The encoding of the file, such as latin-1.")] = "utf-8"
    bad_rows: Annotated[
        Literal["error", "skip"], typer.Option(help="Raise an error for a bad row, or skip and count it.")
    ] = "error"
    length: Annotated[
        int, typer.Option(help="Maximum number of tokens; 0: as in fine-tuning, or the model's, at most 512.")
    ] = 0
    batch: Annotated[int, typer.Option(help="Rows of 128 tokens per batch; 0: chosen for the device.")] = 0
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"

    def __post_init__(self) -> None:
        suffix = self.out.suffix.lower()
        if suffix not in _FORMATS:
            raise InputError(f"--out must end in {' or '.join(_FORMATS)}, got '{self.out}'")
        if self.keep and suffix == ".npy":
            raise InputError("--keep requires a table; a .npy file contains vectors only: use --out FILE.parquet")
        if twice := [name for name in self.keep if self.keep.count(name) > 1]:
            raise InputError(f"--keep must have distinct names, got {twice[0]!r} twice; name it once")


def _embed(config: EmbedConfig) -> Report:
    """Write one vector per text to the file `config.out`, in order."""
    check_file(config.file)
    check_model(config.model)
    from lightbert.files import check_not_input
    from lightbert.progress import progress
    from lightbert.tasks.predict.exported import load_on
    from lightbert.tasks.predict.inputs import Fields
    from lightbert.tasks.predict.records import check_columns, embed_file
    from lightbert.tasks.predict.vectors import embedder_of

    check_not_input(config.out, config.file)
    if config.file != _STDIN and (task := stored_task(config.model)) is not None:
        # Before torch is imported.
        with options_in_errors():
            fields = replace(Fields.of(task, config.text, config.text_b), pairs=bool(config.text_b))
            check_columns(_open(config, task, fields), fields, "", config.keep)
    model = load_on(config.model, config.device)
    embedder = embedder_of(
        model,
        pool=None if config.pool == "auto" else config.pool,
        normalize=config.normalize,
        prompt_name=config.prompt_name,
        size=config.size,
        length=config.length,
        batch=config.batch,
    )
    # Any encoder computes vectors of single texts.
    fields = replace(Fields.of(model.task, config.text, config.text_b), pairs=bool(config.text_b))
    source = _open(config, model.task, fields)
    with options_in_errors(), progress("embed", unit="texts") as bar:
        count = embed_file(
            embedder, source, config.out, fields=fields, keep=config.keep, dtype=config.dtype, advance=bar.advance
        )
    _print_truncated(embedder.cut, embedder.encoder.length)
    amount, width = f"{count:,} vectors of {embedder.width} numbers", embedder.width
    return _report("vectors", amount, count, embedder.cut, source.skipped, config.out, width=width)


@options(EmbedConfig)
def embed(config: EmbedConfig, json: bool) -> None:
    """Encode the texts of a file as vectors, one per text, in order.

    A .npy file is a float32 array [N, D] for numpy.load; a .parquet file has a column "vector" and the columns of
    --keep. A line of standard input or of a .txt file is a text, or a JSON object with "text" and optionally "text_b",
    the second text of a pair. The model needs no fine-tuning.

    Texts that are too long are truncated and counted. Memory use doesn't depend on the amount of text.
    """
    show(_embed(config), json=json)
