"""The report of `lightbert analyse`: the written files, the tables and the metrics."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightbert.commands.options import options, options_in_errors
from lightbert.commands.report import Report, Table, show
from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from lightbert.analysis.report import Results, Section
    from lightbert.analysis.study import Study


@dataclass(frozen=True)
class Config:
    """An analysis, the model or run to analyse, texts, and where to write."""

    name: Annotated[
        str, typer.Argument(help="An analysis and its subject; or a model alone, for all analyses that apply.")
    ] = ""
    subject: Annotated[str, typer.Argument(help="The folder of a model, or of a run (transfer).")] = ""
    text: Annotated[tuple[str, ...], typer.Option(help="A text to draw; can be repeated.")] = ()
    data: Annotated[str, typer.Option(help="A file of texts for statistics: .txt, .jsonl, .csv, .tsv, .parquet.")] = ""
    column: Annotated[str, typer.Option(help="The field or column of --data with the text.")] = "text"
    teacher: Annotated[str, typer.Option(help="A teacher to compare with: adds the KL divergence of each layer.")] = ""
    compare: Annotated[str, typer.Option(help="Another model to draw side by side, of any shape.")] = ""
    layers: Annotated[str, typer.Option(help="Layers to draw, such as 1,4; default: chosen by the analysis.")] = ""
    mean: Annotated[bool, typer.Option("--mean", help="Draw and compare the mean over heads.")] = False
    word: Annotated[
        tuple[str, ...], typer.Option(help="A word whose dynamic kernels are compared; default: repeated words.")
    ] = ()
    max_texts: Annotated[int, typer.Option(help="The number of texts of --data to read.")] = 1000
    length: Annotated[int, typer.Option(help="Maximum number of tokens per text; texts of --data are truncated.")] = 512
    out: Annotated[
        str,
        typer.Option(
            help="A file (.html, .json, .png, .svg, .pdf) or a folder; default: ANALYSIS.html, or report.html for all."
        ),
    ] = ""

    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of --out that lightbert did not write.")
    ] = False

    def __post_init__(self) -> None:
        if self.max_texts < 1:
            raise InputError(f"--max-texts must be >= 1, got {self.max_texts}")
        if self.length < 3:
            raise InputError(f"--length must be >= 3, got {self.length}: [CLS], a token and [SEP]")
        if self.teacher and self.compare:
            raise InputError("--teacher and --compare can't be combined; give one of them")


def run(config: Config) -> Report:
    """Run one analysis or all that apply, or list them."""
    if not config.name:
        content = {"analyses": {name: {"command": line, "what": what} for name, (line, what, _) in ANALYSES.items()}}
        rows = [(name, line, what) for name, (line, what, _) in ANALYSES.items()]
        rows.append(("all that apply", "lightbert analyse MODEL --text TEXT [--data FILE]", "one HTML page"))
        return Report(content, [Table(("analysis", "command", "shows"), rows, left=3)])
    if config.name in ANALYSES:
        line, _, analyse = ANALYSES[config.name]
        if not config.subject:
            raise InputError(f"the analysis {config.name!r} requires a model or a run: {line}")
        return analyse(config, (config.name,))
    if config.subject:
        raise unknown("analysis", config.name, ANALYSES)
    return _analyse_model(config, ())


def _analyse_run(config: Config, names: tuple[str, ...]) -> Report:
    from lightbert.analysis.report import Results
    from lightbert.analysis.run_log import transfer_section

    folder = Path(config.subject)
    results = Results(f"Knowledge transfer of {folder.name}", {"run": str(folder)}, [transfer_section(folder)], {})
    return _write(config, results, Path(config.out) if config.out else folder / "transfer.png")


def _analyse_model(config: Config, names: tuple[str, ...]) -> Report:
    """Run the named analyses, which must apply; without names, all that apply."""
    from lightbert.analysis.report import NotApplicableError, Results, check_target, make_target
    from lightbert.analysis.study import describe, short_name

    out = Path(config.out or f"{names[0] if names else 'report'}.html")
    check_target(out, overwrite=config.overwrite)
    study = _study(config)
    make_target(out)
    sections: list[Section] = []
    left_out: dict[str, str] = {}
    for name, analyse in model_analyses().items():
        if names and name not in names:
            continue
        try:
            sections.append(analyse(study))
        except NotApplicableError as error:
            if names:
                raise
            left_out[name] = str(error)
    if not sections:
        raise InputError(next(iter(left_out.values())))
    facts = describe(study) | ({"data": f"{config.data}, {len(study.texts.data):,} texts"} if config.data else {})
    subjects = (config.subject or config.name, config.teacher.strip() or config.compare.strip())
    results = Results(" and ".join(map(short_name, filter(None, subjects))), facts, sections, left_out)
    return _write(config, results, out)


def _write(config: Config, results: "Results", out: Path) -> Report:
    from lightbert.analysis.report import check_target, format_cell, write_results

    check_target(out, overwrite=config.overwrite)
    files = write_results(results, out, overwrite=config.overwrite)
    tables = [
        Table(table.columns, [[str(format_cell(cell)) for cell in row] for row in table.rows], table.title, left=99)
        for section in results.sections
        for table in section.tables
    ]
    notes = dict.fromkeys(note for section in results.sections for note in section.notes)
    left_out = [f"left out: {name}: {reason}" for name, reason in results.left_out.items()]
    content = {"files": [str(file) for file in files], **results.to_json()}
    return Report(content, [*tables, *notes, *left_out, *(f"wrote {file}" for file in files)])


def model_analyses() -> "dict[str, Callable[[Study], Section]]":
    """The analyses of models by name, in the order of a report."""
    from lightbert.analysis.attention import attention_section
    from lightbert.analysis.heads import concentration_section, heads_section
    from lightbert.analysis.kernels import depthwise_kernels_section, dynamic_kernels_section, fixed_kernels_section

    return {
        "attention": attention_section,
        "concentration": concentration_section,
        "heads": heads_section,
        "dynamic-kernels": dynamic_kernels_section,
        "fixed-kernels": fixed_kernels_section,
        "depthwise-kernels": depthwise_kernels_section,
    }


def _study(config: Config) -> "Study":
    from lightbert.analysis.study import Settings, open_study, read_texts

    with _options_in_errors():
        texts = read_texts(config.text, config.data, column=config.column, limit=config.max_texts)
    return open_study(
        config.subject or config.name,
        texts,
        Settings(_numbers(config.layers), config.mean, config.word, config.length),
        teacher=config.teacher.strip(),
        compare=config.compare.strip(),
    )


@contextmanager
def _options_in_errors() -> Iterator[None]:
    """Name the options of this command in errors of files, which name those of `prepare`."""
    try:
        with options_in_errors():
            yield
    except InputError as error:
        sentence = str(error).replace("--text", "--column")
        raise InputError(re.sub(r"set --encoding.*", "convert it to UTF-8", sentence)) from error


def _numbers(listed: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in listed.split(",")) if listed else ()
    except ValueError:
        raise InputError(f"layers must be numbers separated by commas, such as 1,4, got {listed!r}") from None


Analyse = Callable[[Config, tuple[str, ...]], Report]

ANALYSES: dict[str, tuple[str, str, Analyse]] = {
    "attention": (
        "lightbert analyse attention MODEL --text TEXT [--teacher TEACHER | --compare OTHER]",
        "attention maps for texts: the mean, all heads, chosen layers; with a teacher the KL divergence",
        _analyse_model,
    ),
    "concentration": (
        "lightbert analyse concentration MODEL --data FILE",
        "diagonal concentration C per layer and head, next to the figures of ConvBERT Table 8",
        _analyse_model,
    ),
    "heads": (
        "lightbert analyse heads MODEL --data FILE",
        "locality, entropy and redundancy of each head",
        _analyse_model,
    ),
    "dynamic-kernels": (
        "lightbert analyse dynamic-kernels MODEL --text TEXT [--word WORD]",
        "the kernels that mixed attention generates for each token, and for a word in several contexts",
        _analyse_model,
    ),
    "fixed-kernels": (
        "lightbert analyse fixed-kernels MODEL",
        "the fixed lightweight convolutions of composite attention, per layer and head",
        _analyse_model,
    ),
    "depthwise-kernels": (
        "lightbert analyse depthwise-kernels MODEL",
        "depthwise kernels of each layer, with sorted channels",
        _analyse_model,
    ),
    "transfer": (
        "lightbert analyse transfer RUN",
        "the feature map and attention losses of each layer over the steps of a distillation",
        _analyse_run,
    ),
}
"""Name -> (command, description, function)."""


@options(Config)
def command(config: Config, json: bool) -> None:
    """Draw what a model has learned, and print the metrics.

    `lightbert analyse MODEL --text TEXT --data FILE` runs all analyses that apply to a model and writes report.html, a
    page that contains its pictures and explains how to read them; `lightbert analyse NAME MODEL` runs one of them, and
    `lightbert analyse` lists them. --compare draws a second model side by side; --teacher also computes the KL
    divergence from a teacher. With --out, a picture suffix writes pictures, .json the numbers, and a folder all.
    """
    show(run(config), json=json)
