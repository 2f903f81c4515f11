"""`lightbert search`: an index of texts, searched by their meaning; near-duplicates and clusters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbert.commands.options import check_file, check_model, options, options_in_errors
from lightbert.commands.report import Report, show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from lightbert.tasks.kinds.kind import Table
    from lightbert.tasks.predict.search import SearchIndex

_MODEL = "convbert-small-en"


@dataclass(frozen=True)
class Config:
    """An index, what to add to it, and what to ask."""

    index: Annotated[Path, typer.Argument(help="The folder of the index.")]
    queries: Annotated[tuple[str, ...], typer.Argument(help="Texts to search for.")] = ()
    add: Annotated[
        tuple[str, ...],
        typer.Option(help="A table, a .txt file, or a folder of documents; repeat it for more."),
    ] = ()
    model: Annotated[
        str, typer.Option(help=f"The model of a new index [{_MODEL}]; default: the one that made the index.")
    ] = ""
    file: Annotated[str, typer.Option(help="A file of queries, in the formats of --add.")] = ""
    text: Annotated[str, typer.Option(help="The column of the text in tables.")] = "text"
    id: Annotated[str, typer.Option(help="The column of the ids in tables; default: the file and the row number.")] = ""
    separator: Annotated[str, typer.Option(help="The field separator of .csv files.")] = ","
    bad_rows: Annotated[
        Literal["error", "skip"], typer.Option(help="Raise an error for a bad row, or skip and count it.")
    ] = "error"
    top: Annotated[int, typer.Option(help="The number of results of a query.")] = 10
    duplicates: Annotated[bool, typer.Option("--duplicates", help="List groups of near-duplicates.")] = False
    threshold: Annotated[float, typer.Option(help="The lowest cosine of near-duplicates.")] = 0.95
    clusters: Annotated[int, typer.Option(help="Group the texts; shows typical words and texts of each group.")] = 0
    out: Annotated[Path | None, typer.Option(help="Write all results to this file: .jsonl, .csv or .tsv.")] = None
    batch: Annotated[int, typer.Option(help="Rows of 128 tokens per batch; 0: chosen for the device.")] = 0
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"

    def __post_init__(self) -> None:
        asked = [bool(self.queries), bool(self.file), self.duplicates, self.clusters != 0]
        if sum(asked) > 1:
            raise InputError("give one of: queries, --file, --duplicates, --clusters")
        if self.out is not None and not any(asked):
            raise InputError("--out requires queries, --file, --duplicates or --clusters; add one of them")
        if self.top < 1 or self.clusters < 0:
            raise InputError(f"--top must be >= 1 and --clusters >= 0, got {self.top} and {self.clusters}")
        if not 0 < self.threshold <= 1:
            raise InputError(f"--threshold must be in (0, 1], got {self.threshold}")


def run(config: Config) -> Report:
    """Add files to the index, then search it."""
    from lightbert.data.table_writer import check_path, record_file
    from lightbert.files import check_not_input
    from lightbert.progress import progress
    from lightbert.tasks.predict.search import Reading, SearchIndex, read_description, read_rows, sources

    # Before torch is imported, which takes seconds.
    if config.out is not None:
        check_path(config.out)
        check_not_input(config.out, config.file)
    check_file(config.file)
    description = read_description(config.index)
    if description is None and not config.add:
        raise InputError(f"the index '{config.index}' not found; make it with --add FILE")
    sources(config.add)
    name = config.model or (description["model"] if description else _MODEL)
    check_model(name)
    name = str(Path(name).resolve()) if Path(name).exists() else name
    from lightbert.tasks.predict.exported import load_on

    index = SearchIndex(config.index, load_on(name, config.device), name, batch=config.batch)
    reading = Reading(config.text, config.id, config.separator, config.bad_rows)
    added = 0
    with options_in_errors():
        if config.add:
            with progress("index", unit="texts") as bar:
                added = index.add(config.add, reading, bar.advance)
        queries = list(config.queries)
        if config.file:
            rows = read_rows(Path(config.file), Reading(config.text, "", config.separator, config.bad_rows))
            queries = [row["text"] for row in rows]
    content: dict[str, Any] = {"index": str(config.index), "texts": len(index), "added": added, "cut": index.cut}
    cut = f", truncated: {index.cut:,}" if index.cut else ""
    lines: list[Any] = [f"'{config.index}': {len(index):,} texts, files: {len(index.description['files']):,}{cut}"]
    tables, found = _ask(config, index, queries)
    if config.out is None:
        content["results"] = found
        lines = tables or lines
    else:
        with record_file(config.out) as write:
            for record in found:
                write(record)
        content["out"] = str(config.out)
        lines = [f"{len(found):,} results: {config.out}"]
    return Report(content, lines)


def _ask(config: Config, index: "SearchIndex", queries: list[str]) -> "tuple[list[Table], list[dict[str, Any]]]":
    """The tables to print, and all results as records."""
    if config.duplicates:
        groups = index.duplicates(config.threshold)
        title = f"{len(groups):,} groups of texts with cosines >= {config.threshold:g}"
        records = [{"group": number, **row} for number, group in enumerate(groups, start=1) for row in group]
        return [_table(title, ("group", "score", "id", "text"), records)], records
    if config.clusters:
        clusters = index.clusters(config.clusters)
        records = [{"cluster": place, **row} for place, group in enumerate(clusters, start=1) for row in group["texts"]]
        tables = [
            _table(
                f"{len(group['texts']):,} texts: {', '.join(group['words'])}",
                ("score", "id", "text"),
                group["texts"][:3],
            )
            for group in clusters
        ]
        return tables, records
    answers = index.search(queries, config.top) if queries else []
    records = [
        {"query": query, "rank": rank, **row}
        for query, answer in zip(queries, answers, strict=True)
        for rank, row in enumerate(answer, start=1)
    ]
    columns = ("score", "id", "text")
    return [_table(query, columns, rows) for query, rows in zip(queries, answers, strict=True)], records


def _table(title: str, columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> "Table":
    from lightbert.tasks.kinds.kind import Table

    return Table(title, columns, [tuple(row[name] for name in columns) for row in rows])


@options(Config)
def command(config: Config, json: bool) -> None:
    """Search texts by their meaning: index files once, then ask.

    A folder is indexed by the paragraphs of its .md, .txt and .rst files, tables by their rows, a .txt file by its
    lines. Adding a file again indexes it only if it has changed; interrupted indexing resumes. The search is exact: it
    compares the vector of a query with all vectors of the index. An index is read only with the model that made it.
    """
    show(run(config), json=json)
