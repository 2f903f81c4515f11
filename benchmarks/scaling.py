"""A model of step time as a page: `python -m benchmarks.scaling --out FILE`.

It has the parameters of the model, its errors, and what it predicts for the papers' schedules.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pages import check_page, commit, run_main
from benchmarks.step_time import LINK, Point, StepModel, Workload, demand, fit, points, read_points
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

A model of the time of a step of replaced-token detection on an H200, in bfloat16 with compiled blocks and dropout,
captured as a CUDA graph:

    time = the larger of FLOPs / rate and bytes / bandwidth, summed over the linear layers
         + FLOPs of attention / its rate + bytes of memory-bound kernels / bandwidth + kernels × fixed time

Each linear layer has three products, which read and write their activations: narrow layers wait for memory. Bytes of
memory-bound kernels are what they read and write if every norm, activation and convolution is one fused kernel; both
are counted in `benchmarks/step_time.py`, FLOPs of attention in `models/flops.py`. Kernels are those of the most similar
profiled step, in proportion to the number of tensors of parameters. The rate is that of a large product, measured in
the same run; the other parameters are fitted by least squares to steps of one run of `python -m benchmarks.training`,
at commit {read_points()["commit"]}, which are in [lab/LOG.md](../lab/LOG.md) and `benchmarks/scaling_points.toml`.
"""


def _parameters(model: StepModel) -> Iterator[str]:
    yield "## Parameters\n"
    yield "| parameter | value | |"
    yield "| --- | ---: | --- |"
    yield f"| rate | {model.rate / 1e12:.0f} TFLOP/s | of a large matrix product; measured, not fitted |"
    yield f"| rate of attention | {model.attention_rate / 1e12:.0f} TFLOP/s | next to the time of its bytes |"
    yield f"| bandwidth | {model.bandwidth / 1e12:.2f} TB/s | of all kernels, by the bytes above |"
    yield f"| fixed time | {model.fixed * 1e6:.2f} µs | per kernel of a captured step |"
    yield ""


def _errors(model: StepModel, measured: list[Point]) -> Iterator[str]:
    for title, fitted in (("Steps that the model is fitted to", True), ("What it was not fitted to", False)):
        yield f"## {title}\n"
        if fitted:
            yield '"Encoder" is the forward and backward pass of the encoder alone.\n'
        yield "| model | batch × length | | measured ms | predicted ms | error |"
        yield "| --- | --- | --- | ---: | ---: | ---: |"
        for point in measured:
            if point.fitted == fitted:
                work, predicted = point.workload, model.milliseconds(point.workload)
                yield (
                    f"| {work.model} | {work.batch} × {work.length} | {'step' if work.generator else 'encoder'} | "
                    f"{point.milliseconds:.2f} | {predicted:.2f} | {predicted / point.milliseconds - 1:+z.1%} |"
                )
        yield ""


def _sizes(model: StepModel) -> Iterator[str]:
    yield "## Batch, length and width\n"
    yield (
        "Predicted milliseconds per step (linear layers + products of attention + memory-bound kernels + fixed time), "
        "and million tokens/s.\n"
    )
    yield "| batch × length | " + " | ".join(_MODELS) + " |"
    yield "| --- |" + " --- |" * len(_MODELS)
    for batch, length in _BATCHES:
        cells = []
        for name in _MODELS:
            work = Workload(name, batch, length, _BASE_GENERATOR if name.endswith("base") else 0.25)
            taken = model.milliseconds(work)
            summed = " + ".join(f"{part:.1f}" for part in model.parts(work))
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
    started = demand(Workload("convbert-small", 128, 128)).kernels
    yield (
        "\nOn several GPUs the batch is divided, gradients are all-reduced after the backward pass at "
        f"{LINK / 1e9:.0f} GB/s, and every kernel adds {model.launching * 1e6:.1f} µs because several processes don't "
        f"capture their steps: {model.launching * started * 1e3:.1f} ms for ConvBERT-small.\n"
    )


_LIMITS = """## What the model can't know
- The bytes are those of fused kernels. Copies, casts and sums that aren't fused are in the bandwidth, which is below
  that of the run's elementwise kernel, and in the fixed time.
- Few steps give three parameters, so that the first table says little and the second one counts. The form of the model
  was chosen with that table in view; lab/LOG.md has the forms that were tried.
- The time from one kernel to the next, 0.2 to 0.6 µs, depends on the machine and the process; a step of ConvBERT-small
  at 256 × 128 takes up to 4 percent longer for it.
- One stream: with the generator on a second one, a step of ConvBERT-small at 256 × 128 takes about 4 percent less.
- No step was measured on more than one GPU. The rate of the link is that of the data sheet; the all-reduce of DDP
  overlaps with the backward pass, which the model ignores. The time of launches is the difference of two steps of
  1024 × 128 tokens, with other kernels than today's; it is longer where a step takes less time than Python needs to
  start its kernels.
- Loading of data, evaluations and checkpoints are not included.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="A model of step time, fitted to measured steps.")
    parser.add_argument("--out", type=Path, help="the Markdown file to write; printed if omitted")
    out = parser.parse_args().out
    if out:
        check_page("--out", out)
    content = page("python -m benchmarks.scaling" + (f" --out {out}" if out else ""))
    if out:
        write_atomic(out, content)
    else:
        print(content)


if __name__ == "__main__":
    run_main(main)
