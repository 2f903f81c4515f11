"""A model of step time as a page: `python -m benchmarks.scaling --out FILE`.

    time = Σ max(FLOPs / rate, bytes / bandwidth) of linear layers
         + FLOPs of attention / its rate + bytes of memory-bound kernels / bandwidth + kernels · fixed time

and all-reduce and launches on several GPUs. The rate is a measured ceiling, the other parameters are fitted to the
points in scaling_points.toml. The page has the parameters, the errors, and predictions for the papers' schedules.
"""

import argparse
import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, singledispatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from benchmarks.pages import check_page, commit, run_main
from lightbert.data.masking_settings import Masking
from lightbert.files import write_atomic
from lightbert.models import Model, build, preset
from lightbert.models.flops import flops
from lightbert.models.presets import generator
from lightbert.nn.attention import Attention, SelfAttention
from lightbert.nn.blocks import BottleneckBlock
from lightbert.nn.convolution import Depthwise, DynamicConvolution
from lightbert.nn.encoder import Encoder
from lightbert.nn.feedforward import FeedForward, GroupedLinear
from lightbert.nn.heads import MaskedLanguage
from lightbert.nn.norms import NoNorm
from lightbert.recipes import read

POINTS = Path(__file__).with_name("scaling_points.toml")
_ROUNDS = 20
"""Of the fit; it no longer changes after a few."""
LINK = 450e9
"""Bytes per second between GPUs, in one direction: the data sheet of NVLink on an H200, not measured."""


@dataclass(frozen=True)
class Workload:
    """A step of replaced-token detection on one GPU; without a generator, both passes of the encoder alone."""

    model: str
    batch: int
    length: int
    generator: float = 0.25
    """The generator's width, relative to the model's."""


class Products(NamedTuple):
    """What the three products of a layer need."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class Demand:
    """What a step needs."""

    flops: float
    """Of all matrix products and convolutions."""
    attention_flops: float
    products: tuple[Products, ...]
    """Of each linear layer."""
    bytes: float
    """Of the memory-bound kernels, fused."""
    unfused_bytes: float
    """What large feed-forwards move beyond that."""
    kernels: float
    parameters: int


@dataclass(frozen=True)
class Point:
    """A measured step."""

    workload: Workload
    milliseconds: float
    kernels: float
    fitted: bool


@dataclass(frozen=True)
class StepModel:
    """The fitted parameters."""

    rate: float
    """FLOP/s of a large matrix product, not fitted."""
    attention_rate: float
    """FLOP/s of the products inside the kernels of attention, next to the time of their bytes."""
    bandwidth: float
    """Bytes per second of all kernels, by the bytes that fused kernels move."""
    fixed: float
    """Seconds of a kernel that does nothing."""
    launching: float
    """Seconds that each kernel adds to a step that is not captured as a CUDA graph."""

    def parts(self, work: Workload) -> list[float]:
        """Predict the milliseconds of a step: linear layers, attention's products, memory-bound kernels, fixed time."""
        need = demand(work)
        linear = sum(max(each.flops / self.rate, each.bytes / self.bandwidth) for each in need.products)
        attention = need.attention_flops / self.attention_rate
        memory = (need.bytes + need.unfused_bytes) / self.bandwidth
        return [1e3 * part for part in (linear, attention, memory, need.kernels * self.fixed)]

    def milliseconds(self, work: Workload, gpus: int = 1) -> float:
        """Predict the time of a step whose batch is divided among GPUs."""
        work = replace(work, batch=max(1, work.batch // gpus))
        alone = sum(self.parts(work))
        if gpus == 1:
            return alone
        need = demand(work)
        # Every GPU sends and receives its fp32 gradients twice, except for its own share.
        reduced = 2 * 4 * need.parameters * (gpus - 1) / gpus / LINK
        return alone + 1e3 * (reduced + self.launching * need.kernels)


@cache
def read_points() -> dict[str, Any]:
    """Read the file of measured points."""
    return tomllib.loads(POINTS.read_text(encoding="utf-8"))


def number(figure: str) -> float:
    """Parse a number as lab/LOG.md writes it."""
    return float(figure.replace(",", ""))


def points() -> list[Point]:
    """Return all measured steps."""
    found = []
    for each in read_points()["points"]:
        share = {"step": 0.25, "encoder": 0.0}[each["work"]]
        work = Workload(each["model"], each["batch"], each["length"], share)
        milliseconds, kernels = (number(each[name]) for name in ("milliseconds", "kernels"))
        found.append(Point(work, milliseconds, kernels, each["use"] == "fit"))
    return found


@cache
def demand(work: Workload) -> Demand:
    """Count what a step needs, on the meta device."""
    models, tokens, predicted = _models(work), work.batch * work.length, Masking().positions(work.length)
    parameters = sum(p.numel() for model in models for p in model.parameters())
    forward = sum(flops(model, work.length) for model in models)
    # FLOPs are linear in the length but for attention, which is quadratic.
    attention = sum(flops(model, 2 * work.length) for model in models) / 2 - forward
    moved = sum(encoder_bytes(model, tokens) for model in models)
    layers = [(shape, tokens) for model in models for shape in shapes(model)]
    if work.generator:
        large, small = models
        rtd, mlm = large.heads["rtd"], small.heads["mlm"]
        predictions = work.batch * predicted
        # Both models share the table of words.
        parameters -= small.table.numel()
        forward += flops(rtd, work.length) + flops(mlm, predicted)
        moved += HALF * _LOGITS * predictions * preset(work.model).vocab + _OPTIMIZER * parameters
        layers += [(shape, tokens) for shape in shapes(rtd)] + [(shape, predictions) for shape in shapes(mlm)]
    return Demand(
        flops=3 * work.batch * forward,
        attention_flops=3 * work.batch * attention,
        products=tuple(shape.products(count) for shape, count in layers),
        bytes=moved + _CASTS * parameters,
        unfused_bytes=sum(unfused_bytes(model, tokens) for model in models),
        kernels=_kernels(work),
        parameters=parameters,
    )


def _models(work: Workload) -> list[Model]:
    config = preset(work.model)
    if not work.generator:
        return [build(config, device="meta")]
    small = build(generator(config, work.generator), heads={"mlm": {}}, device="meta")
    return [build(config, heads={"rtd": {}}, device="meta"), small]


def _kernels(work: Workload) -> float:
    """Those of the most similar measured step, in proportion to the tensors of parameters.

    Each tensor of parameters has products, sums and copies of its own.
    """

    def difference(point: Point) -> tuple[bool, bool, float]:
        other = point.workload
        sizes = math.log(other.batch / work.batch), math.log(other.length / work.length)
        families = {type(preset(each.model)) for each in (other, work)}
        return other.model != work.model, len(families) > 1, sum(map(abs, sizes))

    same_work = (point for point in points() if bool(point.workload.generator) == bool(work.generator))
    nearest = min(same_work, key=difference)
    tensors, profiled = (
        sum(len(list(model.parameters())) for model in _models(each)) for each in (work, nearest.workload)
    )
    return nearest.kernels * tensors / profiled


def fit(measured: Sequence[Point]) -> StepModel:
    """Fit all parameters but the rate, by least squares of relative errors."""
    ceilings = read_points()["ceilings"]
    rate, bandwidth = 1e12 * number(ceilings["rate"]), 1e12 * number(ceilings["bandwidth"])
    needs = [demand(point.workload) for point in measured]
    times = np.array([point.milliseconds / 1e3 for point in measured])
    for _ in range(_ROUNDS):
        # The sum is linear once it is known which layers wait for memory.
        rows, known = [], []
        for need in needs:
            least = [(each.bytes, each.flops / rate) for each in need.products]
            waiting = sum(moved for moved, computing in least if moved / bandwidth > computing)
            rows.append([need.attention_flops, need.bytes + need.unfused_bytes + waiting, need.kernels])
            known.append(sum(computing for moved, computing in least if moved / bandwidth <= computing))
        relative = np.array(rows) / times[:, None]
        # Columns differ by many orders of magnitude.
        scale = np.abs(relative).max(axis=0)
        solution = np.linalg.lstsq(relative / scale, 1 - np.array(known) / times, rcond=None)[0] / scale
        per_attention_flop, per_byte, per_kernel = map(float, solution)
        bandwidth = 1 / per_byte
    return StepModel(rate, 1 / per_attention_flop, bandwidth, per_kernel, _launching())


def _launching() -> float:
    launches = read_points()["launches"]
    slow, fast = (1024 * 128 / number(launches[name]) for name in ("plain", "captured"))
    return (slow - fast) / number(read_points()["launched"]["kernels"])


HALF = 2
"""Bytes of a bfloat16."""
LARGE = 2**27
"""From this number of elements on, the activations of a feed-forward are computed again (`nn.projections`)."""
_NORM = 8
"""Forward: read input and residual, write sum and output. Backward: read sum and two gradients, write one."""
_SCALE = 6
"""`NoNorm`, forward: read input and residual, write output. Backward: read residual and gradient, write one."""
_NARROW = 5
"""A feed-forward as one kernel, forward: read, write. Backward: read input and gradient, write a gradient."""
_ACTIVATION = 5
_CONVOLUTION = 6
"""Forward: read, write. Backward: read input and gradient, write a gradient, read once more for the weights."""
_ATTENTION = 12
_LOOKUP = 6
_BIAS = 1
_OPTIMIZER = 36
"""Per parameter, in fp32: weights, gradients and two moments read, all written; the norm."""
_CASTS = 12
"""Per parameter: weights read in fp32 and written in bf16, gradients read in bf16 and written in fp32."""
_LOGITS = 1
"""Cross-entropy writes the gradient of logits; they need not be in memory themselves."""


@singledispatch
def passes(part: nn.Module) -> int:
    """Channels of a token that the memory-bound kernels of a module read or write; the sum of its children."""
    return sum(passes(child) for child in part.children())


@passes.register
def _norm(part: nn.LayerNorm) -> int:
    return _NORM * part.weight.numel()


@passes.register
def _scale(part: NoNorm) -> int:
    return _SCALE * part.weight.numel()


@passes.register
def _bottleneck(part: BottleneckBlock) -> int:
    # Scales without a residual are in the weights of the layers before them.
    in_weights = [norm for norm in (part.enter_norm, part.shared_norm) if isinstance(norm, NoNorm)]
    return sum(passes(child) for child in part.children()) - sum(passes(norm) for norm in in_weights)


@passes.register
def _linear(part: nn.Linear) -> int:
    return _BIAS * part.out_features if part.bias is not None else 0


@passes.register
def _grouped(part: GroupedLinear) -> int:
    return _BIAS * part.bias.numel() if part.bias is not None else 0


@passes.register
def _lookup(part: nn.Embedding) -> int:
    return _LOOKUP * part.embedding_dim


@passes.register
def _depthwise(part: Depthwise) -> int:
    return _CONVOLUTION * part.weight.shape[0]


@passes.register
def _dynamic(part: DynamicConvolution) -> int:
    # The weights of the taps are read and their gradient is written, and so is the product of query and key.
    inside = _CONVOLUTION * part.out_width + 3 * part.n_heads * part.taps + _ACTIVATION * part.out_width
    return inside + sum(passes(child) for child in part.children())


@passes.register
def _feed_forward(part: FeedForward) -> int:
    if isinstance(part.activation, nn.ReLU) and isinstance(part.norm, NoNorm):
        return _NARROW * part.width
    inner = part.up.get_parameter("bias").numel()
    return _ACTIVATION * inner + sum(passes(child) for child in part.children())


@passes.register
def _attention(part: Attention) -> int:
    mixed = isinstance(part, SelfAttention) and part.convolution is not None
    channels = part.n_heads * part.head_width if mixed else part.out_width
    return _ATTENTION * channels + sum(passes(child) for child in part.children())


def encoder_bytes(encoder: nn.Module, tokens: int) -> int:
    """Bytes of forward and backward pass of an encoder without heads."""
    body = [child for name, child in encoder.named_children() if name != "heads"]
    return HALF * tokens * sum(passes(child) for child in body)


def unfused_bytes(encoder: nn.Module, tokens: int) -> int:
    """Bytes that the feed-forwards of an encoder move beyond `encoder_bytes`: large activations are written twice."""
    dense = (part.up for part in encoder.modules() if isinstance(part, FeedForward) and isinstance(part.up, nn.Linear))
    return HALF * tokens * sum(up.out_features for up in dense if tokens * up.out_features >= LARGE)


_PRODUCTS = 3


@dataclass(frozen=True)
class Shape:
    """A linear layer, in independent groups."""

    inputs: int
    """Of one group."""
    outputs: int
    groups: int = 1

    def products(self, tokens: int) -> Products:
        """Its three products."""
        flops = _PRODUCTS * 2 * tokens * self.groups * self.inputs * self.outputs
        return Products(flops, _PRODUCTS * HALF * tokens * self.groups * (self.inputs + self.outputs))


@singledispatch
def shapes(part: nn.Module) -> Iterator[Shape]:
    """The linear layers of a module as a GPU computes them; those of an encoder without heads."""
    for child in part.children():
        yield from shapes(child)


@shapes.register
def _encoder(part: Encoder) -> Iterator[Shape]:
    yield from shapes(part.embeddings)
    yield from shapes(part.blocks)


@shapes.register
def _linear_shapes(part: nn.Linear) -> Iterator[Shape]:
    yield Shape(part.in_features, part.out_features)


@shapes.register
def _grouped_shapes(part: GroupedLinear) -> Iterator[Shape]:
    groups, inputs, outputs = part.weight.shape
    yield Shape(inputs, outputs, groups)


@shapes.register
def _attention_shapes(part: SelfAttention) -> Iterator[Shape]:
    layers = part.linear_projections()
    if layers is None or part.has_biases or part.depthwise is not None:
        for child in part.children():
            yield from shapes(child)
        return
    # All streams of one input are one product.
    streams = [*layers[:2]]
    if part.value_width is None:
        streams.append(layers[2])
        if isinstance(part.convolution, DynamicConvolution) and part.convolution.value is not None:
            streams.append(part.convolution.value)
    yield Shape(part.width, sum(stream.out_features for stream in streams))
    for layer in part.modules():
        if isinstance(layer, nn.Linear) and not any(layer is stream for stream in streams):
            yield Shape(layer.in_features, layer.out_features)


@shapes.register
def _masked_language(part: MaskedLanguage) -> Iterator[Shape]:
    yield from shapes(part.transform)
    yield Shape(part.transform.out_features, part.bias.numel())


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
are counted in `benchmarks/scaling.py`, FLOPs of attention in `models/flops.py`. Kernels are those of the most similar
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
