"""`lightbert bench`: speed compared with other libraries."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbert.commands.options import CommaSeparated, options
from lightbert.commands.report import Report, show
from lightbert.errors import InputError, unknown
from lightbert.processes import set_threads

if TYPE_CHECKING:
    from rich.console import RenderableType

BENCHMARKS = {
    "finetune": (
        "lightbert bench finetune --data GLUE",
        "fine-tuning and prediction against transformers' Trainer, with the same weights and inputs",
    ),
    "latency": (
        "lightbert bench latency --models bert-small,convbert-small",
        "one text on a CPU: torch, ONNX Runtime and ExecuTorch in float32 and int8, and transformers' models",
    ),
    "serving": (
        "lightbert bench serving --model runs/topics/final",
        "`lightbert serve` under load against a loop of model.predict, and transformers' pipeline behind its server",
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
    "in-turn": (
        "python -m lightbert.bench.in_turn CASE CASE",
        "cases of `training`, or several versions of lightbert, timed on a GPU in random order",
    ),
    "profile": (
        "python -m lightbert.bench.step_profile",
        "time of training steps by kind of kernel, on a GPU, next to that of their FLOPs and bytes",
    ),
    "scaling": (
        "python -m lightbert.bench.scaling --out docs/scaling.md",
        "a model of step time against measured steps; predicts other batches, widths and numbers of GPUs",
    ),
    "latency-page": (
        "python -m lightbert.bench.latency_page --out docs/results/latency.md",
        "latency of the papers' models next to the papers' figures",
    ),
    "papers": (
        "python -m lightbert.bench.papers convolutions --data runs/data --glue GLUE --out runs/tables",
        "tables of the papers: every row pre-trained on your text and fine-tuned in the same way",
    ),
    "encoder": (
        "python -m lightbert.bench.small_encoder page",
        "the bundled model and its continuations next to the papers' scores, with tokens and minutes",
    ),
    "adaptation": (
        "python -m lightbert.bench.adaptation --out runs/adaptation",
        "a task with the bundled model and with the same model adapted to text of the task's domain",
    ),
}
"""Name -> (command, description)."""


@dataclass(frozen=True)
class Config:
    """The benchmark and its options."""

    name: Annotated[
        str, typer.Argument(help="finetune, latency, serving or training; lists the benchmarks if omitted.")
    ] = ""
    data: Annotated[str, typer.Option(help="The folder of GLUE, or of SST-2.")] = ""
    tokenizer: Annotated[
        str, typer.Option(help="A tokenizer.json or vocab.txt; trained on the sentences if omitted.")
    ] = ""
    model: Annotated[
        str,
        typer.Option(
            help="A model that transformers implements, too; finetune uses its config only, serving serves it: a "
            "classifier, or a preset, which gets random weights."
        ),
    ] = "convbert-small"
    examples: Annotated[int, typer.Option(help="Number of examples; 0: all, -1: 300 on a CPU, all on a GPU.")] = -1
    batch: Annotated[int, typer.Option(help="Examples per step.")] = 32
    length: Annotated[int, typer.Option(help="Maximum number of tokens; longer texts are truncated.")] = 128
    rounds: Annotated[
        int, typer.Option(help="Number of alternating measurements; 0: 3 for finetune and serving, 10 for latency.")
    ] = 0
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto"
    models: Annotated[
        tuple[str, ...],
        CommaSeparated(),
        typer.Option(
            help="latency: presets and bundled models, such as mobilebert, mobilebert:norm=layer or convbert-thin-en; "
            "attention-block, mixed-block."
        ),
    ] = ()
    runtimes: Annotated[
        tuple[str, ...],
        CommaSeparated(),
        typer.Option(
            help="latency: torch, compiled, onnx, int8, executorch, executorch-int8, peer, peer-onnx, peer-int8."
        ),
    ] = ()
    keep: Annotated[
        str,
        typer.Option(
            help="latency: a folder for files that take minutes to write, those of executorch, executorch-int8, "
            "peer-onnx and peer-int8; those that it has are used if they fit the code, the weights and the packages."
        ),
    ] = ""
    threads: Annotated[int, typer.Option(help="Threads of the model; 0: one per core for latency, 1 for serving.")] = 0
    cases: Annotated[str, typer.Option(help="training: cases whose name contains this text; all if omitted.")] = ""
    kernels: Annotated[
        str,
        typer.Option(
            help="training: Triton kernels: all, none, names such as all,-bias_gelu; each: whole steps with all, all "
            "but one, and none. By default LIGHTBERT_KERNELS."
        ),
    ] = ""
    seconds: Annotated[
        float,
        typer.Option(
            help="training: nothing is compiled after this time, 480 by default; serving: the time of a "
            "measurement, 3 by default."
        ),
    ] = 0.0
    out: Annotated[str, typer.Option(help="training: also write the tables to this Markdown file.")] = ""
    clients: Annotated[
        tuple[str, ...], CommaSeparated(), typer.Option(help="serving: numbers of clients; 1,8,32 by default.")
    ] = ()
    texts: Annotated[int, typer.Option(help="serving: texts per request.")] = 1
    overload_minutes: Annotated[
        float, typer.Option(help="serving: minutes at twice the capacity, at most 60; 0: none.")
    ] = 0.25


@dataclass(frozen=True)
class BenchmarkList:
    """The available benchmarks and their commands."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"benchmarks": {name: {"command": line, "what": what} for name, (line, what) in BENCHMARKS.items()}}

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table("benchmark", "command", "measures")
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
    if config.name == "serving":
        return _serving(config)
    if config.name == "training":
        return _training(config)
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
        ),
        Path(config.keep) if config.keep else None,
    )


def _training(config: Config) -> Report:
    from lightbert.bench import training, training_page
    from lightbert.bench.page_file import check_page

    out = Path(config.out) if config.out else None
    if out is not None:
        check_page("--out", out)
    speed = training.measure(
        training.Settings(cases=config.cases, kernels=config.kernels, seconds=config.seconds or 480.0)
    )
    if out is not None:
        chosen = f" --cases {config.cases!r}" if config.cases else ""
        chosen += f" --kernels {config.kernels}" if config.kernels else ""
        chosen += f" --seconds {config.seconds:g}" if config.seconds else ""
        training_page.write(speed, out, f"lightbert bench training{chosen} --out {config.out}")
    return speed


def _serving(config: Config) -> Report:
    for count in config.clients:
        if not count.isdecimal():
            raise InputError(f"--clients must be numbers such as 1,8,32, got {count!r}")
    # The servers are started with it, too.
    set_threads(config.threads or 1)
    from lightbert.bench.serving import Settings, measure

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
    """Compare speed with other libraries, on the same data in the same run.

    `finetune` trains and predicts SST-2 with lightbert and with transformers' Trainer, with default and with
    length-grouped sampling, and compares prediction of texts of different lengths with texts of equal length.

    `latency` runs models with random weights on one text, alternately in all runtimes, and prints medians and ratios.

    `serving` sends requests of 1, 8 and 32 clients to `lightbert serve` on the loopback address, to transformers'
    pipeline behind the same server, and compares both with a loop of model.predict; then it sends twice as many
    requests as the server can answer.

    `training` times encoders, whole pre-training steps and fine-tuning on a GPU, and compares the figures with targets.
    """
    show(run(config), json=json)
