"""`lightbert bench`: the project's speed claims, measured here and now."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.report import AsJson, Report, show
from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from rich.console import RenderableType

BENCHMARKS = {
    "finetune": (
        "lightbert bench finetune --data GLUE",
        "fine-tuning and prediction beside transformers' Trainer, same weights and rows",
    ),
    "preparation": (
        "python -m lightbert.bench.prepare_speed",
        "text to token shards beside a bare loop over the tokenizers library",
    ),
    "kernels": (
        "python -m lightbert.bench.kernels",
        "the Triton kernels beside the reference, eager and compiled, and transformers' way, on a GPU",
    ),
    "transfer": (
        "python -m lightbert.bench.stage_cost",
        "a stage of progressive knowledge transfer beside a step that transfers all layers",
    ),
}
"""Name -> the command, and what it compares."""


@dataclass(frozen=True)
class Config:
    """Which benchmark, and what it is measured on."""

    name: str = ""
    data: str = ""
    tokenizer: str = ""
    model: str = "convbert-small"
    examples: int = -1
    batch: int = 32
    length: int = 128
    rounds: int = 3
    device: str = "auto"


@dataclass(frozen=True)
class Benchmarks:
    """The list."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `json` can write."""
        return {"benchmarks": {name: {"command": line, "what": what} for name, (line, what) in BENCHMARKS.items()}}

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table("benchmark", "command", "what is compared")
        for name, (line, what) in BENCHMARKS.items():
            table.add_row(name, line, what)
        return table


def run(config: Config) -> Report:
    """List the benchmarks, or run the one that has no command of its own."""
    if not config.name:
        return Benchmarks()
    if config.name not in BENCHMARKS:
        raise unknown("benchmark", config.name, BENCHMARKS)
    if config.name != "finetune":
        raise InputError(f"the benchmark {config.name!r} has a command of its own: {BENCHMARKS[config.name][0]}")
    if not config.data:
        raise InputError("the benchmark needs SST-2 in GLUE's files: add --data FOLDER, or --data hub")
    from lightbert.bench.finetune_speed import Settings, compare

    return compare(
        Settings(
            data=config.data,
            tokenizer=config.tokenizer,
            model=config.model,
            examples=config.examples,
            batch=config.batch,
            length=config.length,
            rounds=config.rounds,
            device=config.device,
        )
    )


def command(
    name: Annotated[str, typer.Argument(help="finetune; without a name, the list of benchmarks.")] = "",
    data: Annotated[str, typer.Option(help="The folder of GLUE, or of SST-2.")] = "",
    tokenizer: Annotated[
        str, typer.Option(help="A tokenizer.json or vocab.txt; without one it is trained on the sentences.")
    ] = "",
    model: Annotated[str, typer.Option(help="A preset that transformers has too.")] = "convbert-small",
    examples: Annotated[int, typer.Option(help="How many; 0 = all, -1 = 300 on a CPU, all on a GPU.")] = -1,
    batch: Annotated[int, typer.Option(help="Examples per step of both sides.")] = 32,
    length: Annotated[int, typer.Option(help="Tokens to which longer texts are cut.")] = 128,
    rounds: Annotated[int, typer.Option(help="How often each side is measured, in turn.")] = 3,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: AsJson = False,
) -> None:
    """Measure the project's speed beside the neighbour's, on the same data in the same run.

    `finetune` trains and predicts SST-2 with our fine-tuning and with transformers' Trainer, as it is and with its
    length-grouped sampling, and compares our prediction of ragged rows with that of fixed-length ones.
    """
    show(run(Config(name, data, tokenizer, model, examples, batch, length, rounds, device)), json=json)
