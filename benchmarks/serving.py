"""`lightbert bench serving` with transformers' pipeline behind the same HTTP server.

python -m benchmarks.serving --model runs/topics/final --clients 1,8,32
"""

import argparse
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from benchmarks.pages import run_main
from lightbert.commands.report import show
from lightbert.errors import InputError
from lightbert.interop import huggingface
from lightbert.interop.load import load
from lightbert.processes import set_threads
from lightbert.serve import load_test
from lightbert.serve.load_test import ServerProcess, ServingReport, Settings, started

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPELINE, GROUPED_PIPELINE = "transformers' pipeline, one request per call", "transformers' pipeline, grouped requests"


@dataclass(frozen=True)
class PipelineReport(ServingReport):
    """All measurements of one load test."""

    # The faster of the two pipelines.
    ratios: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **ServingReport.ratios,
        "to_pipeline": (PIPELINE, GROUPED_PIPELINE),
    }

    skipped: str = ""
    """Why transformers' pipeline was not measured."""

    def __rich__(self) -> "RenderableType":
        from rich.console import Group

        note = [f"transformers' pipeline was not measured: {self.skipped}"] if self.skipped else []
        return Group(super().__rich__(), *note)


def measure(settings: Settings) -> PipelineReport:
    """Run `lightbert serve`, the loops and, for classifiers, the pipelines alternately."""
    skipped = ""
    with tempfile.TemporaryDirectory() as where:

        def add_pipelines(model: str) -> dict[str, AbstractContextManager[ServerProcess]]:
            nonlocal skipped
            try:
                export(model, Path(where) / "model")
            except InputError as error:
                skipped = str(error)
                return {}
            arguments = [str(Path(where) / "model"), "--threads", str(settings.threads)]
            module = "benchmarks.pipeline_server"
            return {
                PIPELINE: started(module, arguments),
                GROUPED_PIPELINE: started(module, [*arguments, "--together"]),
            }

        report = load_test.measure(settings, add_pipelines)
    return PipelineReport(**vars(report), skipped=skipped)


def export(model: str, where: Path) -> None:
    """Write a classifier in the Hugging Face layout."""
    classifier = load(model)
    if list(classifier.heads) != ["classify"]:
        raise InputError("transformers' pipeline is compared for classifiers only")
    huggingface.write(classifier, where)


def main(arguments: list[str] | None = None) -> None:
    """Print a table of rates and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default=",".join(map(str, Settings.clients)), help="numbers of clients")
    for name, default in asdict(Settings()).items():
        if name != "clients":
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--json", action="store_true")
    options = vars(parser.parse_args(arguments))
    as_json, clients = options.pop("json"), tuple(map(int, options.pop("clients").split(",")))
    # The servers are started with it, too.
    set_threads(options["threads"])
    show(measure(Settings(clients=clients, **options)), json=as_json)


if __name__ == "__main__":
    run_main(main)
