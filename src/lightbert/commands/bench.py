"""`lightbert bench`: speed compared with other libraries."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import CommaSeparated, options
from lightbert.commands.report import Report, show
from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from rich.console import RenderableType

BENCHMARKS = {
    "finetune": (
        "lightbert bench finetune --data GLUE",
        "fine-tuning and prediction against transformers' Trainer, with the same weights and inputs",
    ),
    "latency": (
        "lightbert bench latency --models bert-small,convbert-small",
        "one text on a CPU: torch, ONNX Runtime in float32 and int8, and transformers' models",
    ),
    "training": (
        "lightbert bench training",
        "forward and backward passes and whole pre-training steps on a GPU, next to transformers",
    ),
    "preparation": (
        "python -m lightbert.bench.prepare_speed",
        "`lightbert prepare` against a minimal loop over the tokenizers library",
    ),
    "kernels": (
        "python -m lightbert.bench.kernels",
        "Triton kernels against the references, eager and compiled, and transformers, on a GPU",
    ),
    "transfer": (
        "python -m lightbert.bench.stage_cost",
        "a stage of progressive knowledge transfer against a step that transfers all layers",
    ),
}
"""Name -> (command, description)."""


@dataclass(frozen=True)
class Config:
    """The benchmark and its options."""

    name: Annotated[str, typer.Argument(help="finetune, latency or training; lists the benchmarks if omitted.")] = ""
    data: Annotated[str, typer.Option(help="The folder of GLUE, or of SST-2.")] = ""
    tokenizer: Annotated[
        str, typer.Option(help="A tokenizer.json or vocab.txt; trained on the sentences if omitted.")
    ] = ""
    model: Annotated[str, typer.Option(help="A model that transformers implements, too; only its config is used.")] = (
        "convbert-small"
    )
    examples: Annotated[int, typer.Option(help="Number of examples; 0: all, -1: 300 on a CPU, all on a GPU.")] = -1
    batch: Annotated[int, typer.Option(help="Examples per step.")] = 32
    length: Annotated[int, typer.Option(help="Maximum number of tokens; longer texts are truncated.")] = 128
    rounds: Annotated[
        int, typer.Option(help="Number of alternating measurements; 0: 3 for finetune, 10 for latency.")
    ] = 0
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"
    models: Annotated[
        tuple[str, ...],
        CommaSeparated(),
        typer.Option(
            help="latency: presets, such as mobilebert or mobilebert:norm=layer; attention-block, mixed-block."
        ),
    ] = ()
    runtimes: Annotated[
        tuple[str, ...],
        CommaSeparated(),
        typer.Option(help="latency: torch, compiled, onnx, int8, peer, peer-onnx, peer-int8."),
    ] = ()
    threads: Annotated[int, typer.Option(help="latency: the number of threads; 0: one per core.")] = 0
    cases: Annotated[str, typer.Option(help="training: cases whose name contains this text; all if omitted.")] = ""
    seconds: Annotated[float, typer.Option(help="training: no case is started after this time.")] = 480.0


@dataclass(frozen=True)
class BenchmarkList:
    """The available benchmarks and their commands."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"benchmarks": {name: {"command": line, "what": what} for name, (line, what) in BENCHMARKS.items()}}

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table("benchmark", "command", "compares")
        for name, (line, what) in BENCHMARKS.items():
            table.add_row(name, line, what)
        return table


def run(config: Config) -> Report:
    """Run a benchmark, or list all benchmarks."""
    if not config.name:
        return BenchmarkList()
    if config.name not in BENCHMARKS:
        raise unknown("benchmark", config.name, BENCHMARKS)
    if config.name == "latency":
        return _latency(config)
    if config.name == "training":
        from lightbert.bench import training

        return training.measure(training.Settings(cases=config.cases, seconds=config.seconds))
    if config.name != "finetune":
        raise InputError(f"the benchmark {config.name!r} is a separate program; run {BENCHMARKS[config.name][0]}")
    if not config.data:
        raise InputError("the benchmark 'finetune' requires SST-2; add --data FOLDER with GLUE's files, or --data hub")
    from lightbert.bench.finetune_speed import Settings, compare

    return compare(
        Settings(
            data=config.data,
            tokenizer=config.tokenizer,
            model=config.model,
            examples=config.examples,
            batch=config.batch,
            length=config.length,
            rounds=config.rounds or 3,
            device=config.device,
        )
    )


def _latency(config: Config) -> Report:
    from lightbert.bench.latency import DEFAULT_RUNTIMES, MODELS, Settings, measure

    return measure(
        Settings(
            models=config.models or MODELS,
            runtimes=config.runtimes or DEFAULT_RUNTIMES,
            length=config.length,
            threads=config.threads,
            rounds=config.rounds or 10,
        )
    )


@options(Config)
def command(config: Config, json: bool) -> None:
    """Compare speed with other libraries, on the same data in the same run.

    `finetune` trains and predicts SST-2 with lightbert and with transformers' Trainer, with default and with
    length-grouped sampling, and compares prediction of texts of different lengths with texts of equal length.

    `latency` runs models with random weights on one text, alternately in all runtimes, and prints medians and ratios.

    `training` times encoders and whole pre-training steps on a GPU, each captured as a CUDA graph.
    """
    show(run(config), json=json)
