"""`lightbert embed`: vectors for the texts of a file or standard input."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbert.commands.inputs import check_file, check_model
from lightbert.commands.options import CommaSeparated, options, options_in_errors
from lightbert.commands.report import show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.data.tables import Table
    from lightbert.tasks.predict.exported import ExportedModel
    from lightbert.tasks.predict.predictor import Embedder
    from lightbert.tasks.predict.records import Lines
    from lightbert.tasks.predict.text_model import TextModel

_STDIN = "-"
_FORMATS = (".npy", ".parquet")


@dataclass(frozen=True)
class Config:
    """A model, a file of texts ("-" is standard input), and how its vectors are computed and written."""

    model: Annotated[
        str,
        typer.Argument(help="A model: a folder, convbert-small-en, an exported file, or org/name on the Hub."),
    ]
    file: Annotated[
        str,
        typer.Argument(help="A .txt, .jsonl, .csv, .tsv or .parquet file, compressed or not; - for standard input."),
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


@dataclass(frozen=True)
class EmbeddingReport:
    """The number of vectors, truncated texts and skipped rows."""

    count: int
    width: int
    cut: int
    length: int
    skipped: int
    out: Path

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "vectors": self.count,
            "width": self.width,
            "cut": self.cut,
            "skipped": self.skipped,
            "out": str(self.out),
        }

    def __rich__(self) -> "RenderableType":
        skipped = f" ({self.skipped:,} rows skipped)" if self.skipped else ""
        return f"{self.count:,} vectors of {self.width} numbers{skipped}: {self.out}"


def run(config: Config) -> EmbeddingReport:
    """Write one vector per text to the file `config.out`, in order."""
    check_file(config.file)
    check_model(config.model)
    from lightbert.files import check_not_input
    from lightbert.progress import progress
    from lightbert.tasks.predict.exported import load_on
    from lightbert.tasks.predict.inputs import Fields
    from lightbert.tasks.predict.records import embed_file

    check_not_input(config.out, config.file)
    model = load_on(config.model, config.device)
    source = _source(config, model.task)
    embedder = _embedder(config, model)
    # Any encoder computes vectors of single texts.
    fields = replace(Fields.of(model.task, config.text, config.text_b), pairs=bool(config.text_b))
    with options_in_errors(), progress("embed", unit="texts") as bar:
        count = embed_file(
            embedder,
            source,
            config.out,
            fields=fields,
            keep=config.keep,
            advance=bar.advance,
        )
    return EmbeddingReport(count, embedder.width, embedder.cut, embedder.encoder.length, source.skipped, config.out)


@options(Config)
def command(config: Config, json: bool) -> None:
    """Encode the texts of a file as vectors, one per text, in order.

    A .npy file is a float32 array [N, D] for numpy.load; a .parquet file has a column "vector" and the columns of
    --keep. A line of standard input or of a .txt file is a text, or a JSON object with "text" and optionally "text_b",
    the second text of a pair. The model needs no fine-tuning.

    Texts that are too long are truncated and counted. Memory use doesn't depend on the amount of text.
    """
    report = run(config)
    if report.cut:
        which = "1 text was" if report.cut == 1 else f"{report.cut:,} texts were"
        print(f"{which} truncated to {report.length} tokens", file=sys.stderr)
    show(report, json=json)


def _embedder(config: Config, model: "TextModel | ExportedModel") -> "Embedder":
    from lightbert.tasks.predict.exported import ExportedModel

    options: dict[str, Any] = {
        "pool": None if config.pool == "auto" else config.pool,
        **{name: getattr(config, name) for name in ("normalize", "prompt_name", "size", "length", "batch")},
    }
    if isinstance(model, ExportedModel):
        return model.embedder(**options)
    from lightbert.tasks.predict.text_model import embedder_of

    return embedder_of(model, **options)


def _source(config: Config, task: Mapping[str, Any]) -> "Lines | Table":
    from lightbert.data.text_files import bounded_lines
    from lightbert.tasks.predict.records import Lines, open_records

    if config.file == _STDIN:
        return Lines(bounded_lines(sys.stdin.buffer, "standard input"), "standard input", config.bad_rows)
    as_in_training = task.get("data", {}).get("separator", ",")
    separator = as_in_training if config.separator is None else config.separator
    return open_records(config.file, config.bad_rows, separator=separator)
