"""`lightbert bench`: the speed of a model on this machine."""

from dataclasses import dataclass
from typing import Annotated

import typer

from lightbert.commands.options import CommaSeparated, check_unused, options
from lightbert.commands.report import Printable, Report, Table, show
from lightbert.errors import InputError, unknown
from lightbert.processes import set_threads

BENCHMARKS = {
    "latency": (
        "lightbert bench latency --models bert-small,convbert-small",
        "one text on a CPU: torch, ONNX Runtime and ExecuTorch in float32 and int8",
    ),
    "serving": (
        "lightbert bench serving --model runs/topics/final",
        "`lightbert serve` under load, next to a loop of model.predict",
    ),
}
"""Name -> (command, description)."""

_OF_SERVING = {"model", "seconds", "clients", "texts", "overload_minutes"}
_OTHERS = "Comparisons with other libraries and tables of results are programs of the repository: docs/benchmarks.md"


@dataclass(frozen=True)
class Config:
    """The benchmark and its options."""

    name: Annotated[str, typer.Argument(help="latency or serving; lists the benchmarks if omitted.")] = ""
    model: Annotated[str, typer.Option(help="serving: a classifier, or a preset, which gets random weights.")] = (
        "convbert-small"
    )
    models: Annotated[
        tuple[str, ...],
        CommaSeparated(),
        typer.Option(
            help="latency: presets, bundled models and model folders, such as mobilebert, mobilebert:norm=layer or "
            "convbert-thin-en."
        ),
    ] = ()
    runtimes: Annotated[
        tuple[str, ...],
        CommaSeparated(),
        typer.Option(help="latency: torch, compiled, onnx, int8, executorch, executorch-int8."),
    ] = ()
    length: Annotated[int, typer.Option(help="latency: number of tokens.")] = 128
    rounds: Annotated[
        int, typer.Option(help="Number of alternating measurements; 0: 10 for latency, 3 for serving.")
    ] = 0
    threads: Annotated[int, typer.Option(help="Threads of the model; 0: one per core for latency, 1 for serving.")] = 0
    seconds: Annotated[float, typer.Option(help="serving: the time of a measurement; 0: 3.")] = 0.0
    clients: Annotated[
        tuple[str, ...], CommaSeparated(), typer.Option(help="serving: numbers of clients; 1,8,32 by default.")
    ] = ()
    texts: Annotated[int, typer.Option(help="serving: texts per request.")] = 1
    overload_minutes: Annotated[
        float, typer.Option(help="serving: minutes at twice the capacity, at most 60; 0: none.")
    ] = 0.25


def run(config: Config) -> Printable:
    """Run a benchmark, or list all benchmarks."""
    if not config.name:
        content = {"benchmarks": {name: {"command": line, "what": what} for name, (line, what) in BENCHMARKS.items()}}
        rows = [(name, line, what) for name, (line, what) in BENCHMARKS.items()]
        return Report(content, [Table(("benchmark", "command", "measures"), rows, caption=_OTHERS, left=3)])
    if config.name not in BENCHMARKS:
        raise unknown("benchmark", config.name, BENCHMARKS)
    own = {"models", "runtimes", "length"} if config.name == "latency" else _OF_SERVING
    check_unused(config, {"name", "rounds", "threads", *own}, f"with the benchmark {config.name!r}")
    return _latency(config) if config.name == "latency" else _serving(config)


def _latency(config: Config) -> Printable:
    # PyTorch reads it when it is imported.
    set_threads(config.threads)
    from lightbert.deploy.latency import Settings, measure

    return measure(
        Settings(
            models=config.models or Settings.models,
            runtimes=config.runtimes or Settings.runtimes,
            length=config.length,
            threads=config.threads,
            rounds=config.rounds or Settings.rounds,
        )
    )


def _serving(config: Config) -> Printable:
    for count in config.clients:
        if not count.isdecimal():
            raise InputError(f"--clients must be numbers such as 1,8,32, got {count!r}")
    # The server is started with it, too.
    set_threads(config.threads or 1)
    from lightbert.serve.load_test import Settings, measure

    return measure(
        Settings(
            model=config.model,
            clients=tuple(map(int, config.clients)) or Settings.clients,
            seconds=config.seconds or Settings.seconds,
            texts=config.texts,
            threads=config.threads or Settings.threads,
            rounds=config.rounds or Settings.rounds,
            overload_minutes=config.overload_minutes,
        )
    )


@options(Config)
def command(config: Config, json: bool) -> None:
    """Measure the speed of models on this machine.

    `latency` runs models with random weights on one text, alternately in all runtimes, and prints medians and ratios.

    `serving` sends requests of 1, 8 and 32 clients to `lightbert serve` on the loopback address and compares it with a
    loop of model.predict; then it sends twice as many requests as the server can answer.
    """
    show(run(config), json=json)
