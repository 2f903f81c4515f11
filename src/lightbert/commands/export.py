"""`lightbert export`: a model as a file for another runtime."""

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbert.commands import evaluate
from lightbert.commands.inputs import check_file, check_model
from lightbert.commands.options import CommaSeparated, options, options_in_errors
from lightbert.commands.report import show
from lightbert.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lightbert.deploy.outcome import Export, MetricChange
    from lightbert.deploy.publication import Measure
    from lightbert.deploy.verification import Batch
    from lightbert.models import Model


@dataclass(frozen=True)
class Config:
    """A model, a target and a folder; the user's data, for calibration and for the metric before and after."""

    model: Annotated[str, typer.Argument(help="A model: a folder, convbert-small-en, or org/name on the Hub.")]
    out: Annotated[Path, typer.Option(help="The folder to write.")]
    to: Annotated[
        Literal["onnx", "pt2", "executorch"], typer.Option(help="The target: onnx, pt2 (PyTorch) or executorch.")
    ] = "onnx"
    int8: Annotated[
        Literal["none", "dynamic", "static", "qat"],
        typer.Option(
            help="Quantize: none; dynamic, without data; static, calibrated on --data; qat, with the ranges of "
            "quantization-aware training."
        ),
    ] = "none"
    head: Annotated[
        str, typer.Option(help="The head to export, or states for the hidden states; default: that of the task.")
    ] = ""
    data: Annotated[
        str, typer.Option(help="A file, or the folder of a task: calibrates static int8, measures the metric.")
    ] = ""
    task: Annotated[str, typer.Option(help="The task of the data, as in evaluate; default: that of the model.")] = ""
    split: Annotated[str, typer.Option(help="The split of the data.")] = "dev"
    text: Annotated[str | None, typer.Option(help="The column of the text; default: as in fine-tuning.")] = None
    text_b: Annotated[str | None, typer.Option(help="The column of the second text.")] = None
    label: Annotated[str | None, typer.Option(help="The column of the label.")] = None
    separator: Annotated[str | None, typer.Option(help="The field separator of .csv files.")] = None
    labels: Annotated[
        tuple[str, ...], CommaSeparated(), typer.Option(help="Names for the outputs of a model without label names.")
    ] = ()
    calibrate: Annotated[int, typer.Option(help="The number of examples to calibrate on.")] = 128
    max_loss: Annotated[float, typer.Option(help="The largest loss of the metric in points.")] = 0.5
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder.")] = False


@dataclass(frozen=True)
class ExportReport:
    """The written folder and the comparison with the model."""

    export: "Export"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return self.export.to_json()

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table

        export = self.export
        table = Table("compared with the model", "rows", "tokens", "largest error", "cosine", "same predictions")
        for each in export.comparisons:
            table.add_row(
                each.inputs,
                str(each.rows),
                str(each.tokens),
                f"{each.error:.1e}",
                f"{each.cosine:.6f}",
                f"{each.same:.1%}",
            )
        size = f"{export.bytes / 1e6:.1f} MB, {export.precision}, written in {export.seconds:.1f} s"
        return Group(
            table,
            *self._float_layers(),
            *([_change(export.metric)] if export.metric is not None else []),
            f"{export.folder / export.file}: head {export.head}, {size}",
        )

    def _float_layers(self) -> "list[RenderableType]":
        from rich.table import Table

        quantized = self.export.quantized
        if quantized is None or not quantized.floats:
            return []
        table = Table("stays in float32", "error in int8", "range of its input")
        for each in quantized.floats:
            table.add_row(each.name, f"{each.error:.1%}", f"{each.low:.3g} to {each.high:.3g}")
        return [table, f"{len(quantized.floats)} of {quantized.layers} linear layers stay in float32"]


def _change(metric: "MetricChange") -> str:
    points = 100 * (metric.after - metric.before)
    return f"{metric.name}: {metric.before:.4f} before, {metric.after:.4f} after ({points:+.2f} points)"


def run(config: Config) -> ExportReport:
    """Load the model, and write, verify and publish the folder."""
    if not config.force and config.out.is_dir() and any(config.out.iterdir()):
        raise InputError(f"'{config.out}' is not empty; choose another folder, or add --force to replace it")
    if config.int8 == "static" and not config.data:
        raise InputError("--int8 static requires texts to calibrate on; add --data FILE, or use --int8 dynamic")
    if config.calibrate < 1:
        raise InputError(f"--calibrate must be >= 1, got {config.calibrate}")
    if config.max_loss < 0:
        raise InputError(f"--max-loss must be >= 0, got {config.max_loss}")
    if config.int8 != "none" and (config.to == "pt2" or (config.to == "executorch" and config.int8 != "dynamic")):
        supported = "float32 only" if config.to == "pt2" else "--int8 dynamic only"
        raise InputError(f"--to {config.to} supports {supported}, got --int8 {config.int8}; use --to onnx")
    check_file(config.data)
    check_model(config.model)
    from lightbert.deploy.export import export_onnx, export_program
    from lightbert.deploy.publication import Guard, choose_head
    from lightbert.interop.load import load
    from lightbert.tasks.predict.exported import STATES

    model = load(config.model)
    head = choose_head(model, config.head)
    if config.labels:
        _name_outputs(model, config.labels)
    calibration, measure = _texts(config, model) if head == STATES else _task(config, model)
    guard = Guard(measure, config.max_loss)
    if config.to != "onnx":
        int8 = config.int8 == "dynamic"
        return ExportReport(export_program(model, config.out, to=config.to, head=head, int8=int8, guard=guard))
    mode = None if config.int8 == "none" else config.int8
    return ExportReport(export_onnx(model, config.out, head=head, int8=mode, calibration=calibration, guard=guard))


def _name_outputs(model: "Model", names: tuple[str, ...]) -> None:
    """Name the outputs of a model, for its data and for the folder."""
    from lightbert.tasks.predict.predictor import kind_of_model

    if known := kind_of_model(model).description().get("labels") if model.task or model.labels else ():
        raise InputError(f"the outputs of the model have names, {', '.join(known)}; leave out --labels")
    if "labels" not in kind_of_model(model, names).description():
        raise InputError(f"the outputs of the model aren't labels, got --labels {','.join(names)}; leave it out")
    model.labels = names


def _task(config: Config, model: "Model") -> "tuple[list[Batch], Measure | None]":
    """Examples to calibrate on, and the metrics on the data of the model's task."""
    if not config.data:
        return [], None
    from lightbert.deploy.calibration_data import task_batches
    from lightbert.nn.quantization import simulated_copy
    from lightbert.tasks.predict.evaluation import evaluate as evaluate_model

    given = evaluate.Config(
        model=config.model,
        task=config.task,
        data=config.data,
        split=config.split,
        text=config.text,
        text_b=config.text_b,
        label=config.label,
        separator=config.separator,
        labels=config.labels,
    )
    task = evaluate.task_of(given, model)
    # What quantization-aware training measured, too.
    before = simulated_copy(model, model.ranges) if config.int8 == "qat" else model

    def measure(runtime: Any) -> dict[str, float]:
        found = evaluate_model(before, task, config.split, device="cpu", labels=config.labels, runtime=runtime)
        if not found.metrics:
            raise InputError(f"the {config.split} split of '{config.data}' must have labels, to measure the metric")
        return dict(found.metrics)

    return task_batches(model, task.examples(config.split)[: config.calibrate]), measure


def _texts(config: Config, model: "Model") -> "tuple[list[Batch], None]":
    """Texts to calibrate on, if the hidden states are exported; read like those of `lightbert embed`."""
    if not config.data:
        return [], None
    from lightbert.deploy.calibration_data import text_batches
    from lightbert.tasks.predict.inputs import Fields
    from lightbert.tasks.predict.records import open_records, text_records

    as_in_training = model.task.get("data", {}).get("separator", ",")
    separator = as_in_training if config.separator is None else config.separator
    fields = replace(Fields.of(model.task, config.text, config.text_b), pairs=bool(config.text_b))
    with options_in_errors(), open_records(config.data, separator=separator) as rows:
        examples = [example for _, example in islice(text_records(rows, fields), config.calibrate)]
    return text_batches(model, examples), None


@options(Config)
def command(config: Config, json: bool) -> None:
    """Export a model for another runtime: model.onnx, model.pt2 or model.pte with config and tokenizer, in a folder.

    The file is compared with the model on sentences, a padded batch, pairs, one token and the maximum length; the
    folder appears only if all outputs agree. Predict with `lightbert predict FOLDER`, which doesn't need torch.

    --int8 makes the file about four times smaller and twice as fast. Layers that lose too much stay in float32 and are
    listed. With --data, the metric of the task is measured before and after; a loss of more than --max-loss points is
    an error.
    """
    show(run(config), json=json)
