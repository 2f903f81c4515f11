"""A model of step time as a page: `python -m lightbert.bench.scaling --out FILE`.

It has the parameters of the model, its errors, and what it predicts for the papers' schedules.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from lightbert.bench.source_version import commit
from lightbert.bench.step_time import LINK, Point, StepModel, Workload, demand, fit, points
from lightbert.errors import InputError
from lightbert.files import write_atomic
from lightbert.recipes import read

SCHEDULES = ("bert-small-rtd", "convbert-small-rtd", "convbert-medium-small-rtd", "bert-base-rtd", "convbert-base-rtd")
GPUS = (1, 8)
_MODELS = ("convbert-small", "convbert-medium-small", "convbert-base")
_BATCHES = ((64, 128), (128, 128), (256, 128), (1024, 128), (64, 512), (256, 512))
_BASE_GENERATOR = 1 / 3


def page(command: str) -> str:
    """Fit the model and return the page."""
    measured = points()
    fitted = [point for point in measured if point.fitted]
    model = fit(fitted)
    parts = [_introduction(command), *_parameters(model), *_errors(model, measured)]
    return "\n".join([*parts, *_sizes(model), *_schedules(model), _LIMITS])


def _introduction(command: str) -> str:
    return f"""# Step time

Written by `{command}` at commit {commit()}; don't edit.

A model of the time of a step of replaced-token detection on an H200, in bfloat16 with compiled blocks, captured as a
CUDA graph:

    time = FLOPs / rate + bytes / bandwidth + kernels × fixed time

FLOPs are those of the matrix products of generator, discriminator and heads, forward and backward (`bench/flops.py`).
Bytes are what the memory-bound kernels read and write if every norm, activation and convolution is one fused kernel
(`bench/traffic.py`). Kernels are those of a measured step, in proportion to the number of blocks. The parameters are
fitted by least squares to steps in [lab/LOG.md](../lab/LOG.md), as listed in `bench/scaling_points.toml`.
"""


def _parameters(model: StepModel) -> Iterator[str]:
    yield "## Parameters\n"
    yield "| parameter | value | |"
    yield "| --- | ---: | --- |"
    yield f"| rate | {model.rate / 1e12:.0f} TFLOP/s | of the matrix products of a step, most of them narrow |"
    yield f"| bandwidth | {model.bandwidth / 1e12:.2f} TB/s | by the bytes above; separate kernels move more |"
    factor = f"{model.reference_factor:.1f} ×"
    yield f"| references | {factor} | bytes of the convolutions' references, relative to those of the kernels |"
    yield f"| fixed time | {model.fixed * 1e6:.2f} µs | per kernel of a captured step |"
    yield ""


def _errors(model: StepModel, measured: list[Point]) -> Iterator[str]:
    for title, fitted in (("Steps that the model is fitted to", True), ("Steps that it was not fitted to", False)):
        yield f"## {title}\n"
        yield "| model | batch × length | convolutions | measured | as ms | predicted ms | error | commit |"
        yield "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"
        for point in measured:
            if point.fitted == fitted:
                work, predicted = point.workload, model.milliseconds(point.workload)
                yield (
                    f"| {work.model} | {work.batch} × {work.length} | {'kernels' if work.kernels else 'references'} | "
                    f"{point.figure} | {point.milliseconds:.2f} | {predicted:.2f} | "
                    f"{predicted / point.milliseconds - 1:+z.1%} | {point.commit} |"
                )
        yield ""


def _sizes(model: StepModel) -> Iterator[str]:
    yield "## Batch, length and width\n"
    yield (
        "Predicted milliseconds per step with kernels (matrix products + memory-bound kernels + fixed time), and "
        "million tokens/s.\n"
    )
    yield "| batch × length | " + " | ".join(_MODELS) + " |"
    yield "| --- |" + " --- |" * len(_MODELS)
    for batch, length in _BATCHES:
        cells = []
        for name in _MODELS:
            work = Workload(name, batch, length, _BASE_GENERATOR if name.endswith("base") else 0.25)
            need, taken = demand(work), model.milliseconds(work)
            parts = (need.flops / model.rate, need.bytes / model.bandwidth, need.kernels * model.fixed)
            summed = " + ".join(f"{1e3 * part:.1f}" for part in parts)
            cells.append(f"{taken:.1f} ({summed}), {batch * length / taken / 1e3:.2f}")
        yield f"| {batch} × {length} | {' | '.join(cells)} |"
    yield ""


def _schedules(model: StepModel) -> Iterator[str]:
    yield "## The papers' schedules\n"
    yield "| recipe | steps | batch × length | " + " | ".join(f"{gpus} GPU{'s' * (gpus > 1)}" for gpus in GPUS) + " |"
    yield "| --- | ---: | --- |" + " ---: |" * len(GPUS)
    for name in SCHEDULES:
        recipe = read(name)
        work = Workload(recipe["model"], recipe["batch"], recipe["length"], recipe["generator"])
        times = [model.milliseconds(work, gpus) for gpus in GPUS]
        cells = [f"{taken:.1f} ms, {taken * recipe['steps'] / 3.6e6:,.1f} h" for taken in times]
        size = f"{work.batch} × {work.length}"
        yield f"| `{name}` | {recipe['steps']:,} | {size} | {' | '.join(cells)} |"
    yield (
        "\nOn several GPUs the batch is divided, gradients are all-reduced after the backward pass at "
        f"{LINK / 1e9:.0f} GB/s, and every step loses {model.launching * 1e3:.1f} ms because several processes don't "
        "capture their steps.\n"
    )


_LIMITS = """## What the model can't know
- All of these steps are older than the present kernels, which take less time, and than the present optimizer, whose
  bytes are counted: lab/LOG.md has newer times.
- All of these models have 12 blocks of width 256. Base sizes are an extrapolation to wide matrix products, which run at
  a higher rate.
- There are five equations (four steps, and the matrix products of one of them) for four parameters: only the second
  table says how good the model is. Its form was chosen with that table in view: a first form, with one bandwidth for
  all bytes of references, missed BERT-small by 25 percent.
- The steps were measured at several commits, between which kernels changed. Two of the fitted steps have the same shape
  and differ by seven percent.
- No step was measured on more than one GPU. The rate of the link is that of the data sheet; the all-reduce of DDP
  overlaps with the backward pass, which the model ignores. The loss without capture is the difference of two steps of
  1024 × 128 tokens; it is larger where a step takes less time than Python needs to start its kernels.
- Loading of data, evaluations and checkpoints are not included.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="A model of step time, fitted to measured steps.")
    parser.add_argument("--out", type=Path, help="the Markdown file to write; printed if omitted")
    out = parser.parse_args().out
    try:
        content = page("python -m lightbert.bench.scaling" + (f" --out {out}" if out else ""))
    except InputError as error:
        sys.exit(f"lightbert: {error}")
    if out:
        write_atomic(out, content)
    else:
        print(content)


if __name__ == "__main__":
    main()
