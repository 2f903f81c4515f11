"""`lightbert export`: a model as a file for another runtime."""

from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lightbert.commands import evaluate
from lightbert.commands.options import (
    CommaSeparated,
    check_file,
    check_model,
    check_unused,
    options,
    options_in_errors,
)
from lightbert.commands.report import show
from lightbert.deploy.targets import TARGETS
from lightbert.errors import InputError, unknown

if TYPE_CHECKING:
    from lightbert.deploy.export import Export, Measure
    from lightbert.deploy.verification import Batch
    from lightbert.models import Model


@dataclass(frozen=True)
class Config:
    """A model, a target and a folder; the user's data, for calibration and for the metric before and after."""

    model: Annotated[str, typer.Argument(help="A model: a folder, convbert-small-en, or org/name on the Hub.")]
    out: Annotated[Path, typer.Option(help="The folder to write.")]
    to: Annotated[
        str,
        typer.Option(
            metavar="|".join(TARGETS), help=f"The target: {', '.join(target.title for target in TARGETS.values())}."
        ),
    ] = "onnx"
    int8: Annotated[
        Literal["none", "dynamic", "static", "qat"],
        typer.Option(
            help="Quantize: none; dynamic, without data; static, calibrated on --data; qat, with the ranges of "
            "quantization-aware training."
        ),
    ] = "none"
    head: Annotated[
        str,
        typer.Option(
            help="The head to export, vector for the vectors of a sentence encoder, or states for the hidden states; "
            "default: that of the task."
        ),
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


def run(config: Config) -> "Export":
    """Load the model, and write, verify and publish the folder."""
    if config.to not in TARGETS:
        raise unknown("target", config.to, TARGETS)
    if not config.force and config.out.is_dir() and any(config.out.iterdir()):
        raise InputError(f"'{config.out}' is not empty; choose another folder, or add --force to replace it")
    if config.int8 == "static" and not config.data:
        raise InputError("--int8 static requires texts to calibrate on; add --data FILE, or use --int8 dynamic")
    if config.calibrate < 1:
        raise InputError(f"--calibrate must be >= 1, got {config.calibrate}")
    if config.max_loss < 0:
        raise InputError(f"--max-loss must be >= 0, got {config.max_loss}")
    if not config.data:
        of_data = {"task", "split", "text", "text_b", "label", "separator", "calibrate", "max_loss"}
        check_unused(config, {field.name for field in fields(config)} - of_data, "without --data")
    int8 = None if config.int8 == "none" else config.int8
    TARGETS[config.to].check(int8)
    check_file(config.data)
    check_model(config.model)
    from lightbert.deploy.export import choose_head, export
    from lightbert.deploy.verification import reads_texts
    from lightbert.interop.load import load

    model = load(config.model)
    head = choose_head(model, config.head)
    if config.labels:
        _name_outputs(model, config.labels)
    calibration: list[Batch] = []
    measure: Measure | None = None
    if config.data:
        calibration, measure = _texts(config, model, head) if reads_texts(model, head) else _task(config, model, head)
    return export(
        model,
        config.out,
        to=config.to,
        head=head,
        int8=int8,
        calibration=calibration,
        measure=measure,
        max_loss=config.max_loss,
    )


def _name_outputs(model: "Model", names: tuple[str, ...]) -> None:
    """Name the outputs of a model, for its data and for the folder."""
    from lightbert.tasks.predict.predictor import kind_of_model

    if known := kind_of_model(model).description().get("labels") if model.task or model.labels else ():
        raise InputError(f"the outputs of the model have names, {', '.join(known)}; leave out --labels")
    if "labels" not in kind_of_model(model, names).description():
        raise InputError(f"the outputs of the model aren't labels, got --labels {','.join(names)}; leave it out")
    model.labels = names


def _task(config: Config, model: "Model", head: str) -> "tuple[list[Batch], Measure | None]":
    """Examples to calibrate on, and the metrics on the data of the model's task."""
    from lightbert.deploy.verification import calibration_batches
    from lightbert.nn.quantization import simulated_copy
    from lightbert.tasks.predict.evaluation import evaluate as evaluate_model

    keys = ("model", "task", "data", "split", "text", "text_b", "label", "separator", "labels")
    task = evaluate.task_of(evaluate.Config(**{key: getattr(config, key) for key in keys}), model)
    # What quantization-aware training measured, too.
    before = simulated_copy(model, model.ranges) if config.int8 == "qat" else model

    def measure(runtime: Any) -> dict[str, float]:
        evaluation = evaluate_model(before, task, config.split, device="cpu", labels=config.labels, runtime=runtime)
        if not evaluation.metrics:
            raise InputError(f"the {config.split} split of '{config.data}' must have labels, to measure the metric")
        return dict(evaluation.metrics)

    examples = task.examples(config.split)[: config.calibrate]
    return calibration_batches(model, examples, head), measure


def _texts(config: Config, model: "Model", head: str) -> "tuple[list[Batch], None]":
    """Texts to calibrate on, if the head has no task; read like those of `lightbert embed`."""
    from lightbert.deploy.verification import calibration_batches
    from lightbert.tasks.predict.inputs import Fields
    from lightbert.tasks.predict.records import open_records, table_options, text_records

    fields = replace(Fields.of(model.task, config.text, config.text_b), pairs=bool(config.text_b))
    options = table_options(model.task, separator=config.separator)
    with options_in_errors(), open_records(config.data, fields, options) as rows:
        examples = [example for _, example in islice(text_records(rows, fields), config.calibrate)]
    return calibration_batches(model, examples, head), None


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
